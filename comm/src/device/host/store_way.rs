//! Whether a kernel stores past the caches: as its field's size says, or as measuring does where that is not enough.
//!
//! A field that fits the largest cache by its size may still not stay there, since other ranks, and whoever else has
//! the machine's cores, use it too; no system says how much is left. What a field then loses is as much as one in a
//! free cache would lose past it. Nor does any say how far away that cache is: asking for lines ahead gains a third on one
//! machine and nothing on another. So launches take turns, and those that follow go the way that took least.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::device::Tile;
use crate::element::Element;

/// Each way is measured on so many bytes, in a few launches at least: some milliseconds, of which the least time of a
/// launch counts, as others may be at work in some.
const MEASURED_BYTES: usize = 64 << 20;
const LEAST_MEASURED: usize = 3;

/// How often as many launches there are until both are measured anew, since others may have come, or gone: what the
/// slower way loses is lost in one of so many.
const PERIOD: u64 = 256;

/// What launches past the caches take at most of those through them: what is sent then comes from memory too, which is
/// not measured, and who is disturbed by others should not lose for as little.
const WORTHWHILE: f64 = 0.9;

/// How a launch goes about the caches. A kernel may do the same for two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// For what is near to the core: it stores through the caches, and asks for nothing.
    Through,
    /// It stores through the caches, and asks for lines ahead, of what it reads and of what it writes.
    Ahead,
    /// It stores past the caches, and asks for lines ahead of what it reads.
    Past,
}

impl Way {
    /// In the order of the sizes of fields that they are for.
    pub const ALL: [Self; 3] = [Self::Through, Self::Ahead, Self::Past];
}

/// Which [`Way`] launches of one kernel on one field go. Clones learn together.
///
/// ```
/// use streamhalo_comm::device::{StoreWay, Tile, Way, past_caches};
///
/// let tile = Tile { start: [0; 3], end: [1, 64, 64] };
/// let way = StoreWay::new::<f64>(tile);
/// // In the body of a kernel, which is given `part` of the tile:
/// let part = tile;
/// let went = way.store(tile, part, |way| past_caches(|_stores| way));
/// assert_eq!(went, Way::Through, "two generations of 32 KiB stay in a cache");
/// ```
#[derive(Debug, Clone)]
pub struct StoreWay {
    /// Launches of fewer points go through the caches.
    least_points: usize,
    found: Found,
}

#[derive(Debug, Clone)]
enum Found {
    BySize(Way),
    ByMeasuring(Arc<Measurement>),
}

impl StoreWay {
    /// For a kernel that reads one generation of elements `T` and writes another, of which `tile` is what a launch
    /// computes, or the largest that one does. Launches go through the caches of each core if these hold the field, and
    /// past the caches if not even the largest one of this machine does; for all between, every way is measured. The
    /// sizes are those that the system says the first core has.
    pub fn new<T: Element>(tile: Tile) -> Self {
        Self::with(Caches::of_this_machine(), tile.points(), 2 * size_of::<T>())
    }

    fn with(caches: Caches, points: usize, bytes_of_point: usize) -> Self {
        let bytes = points.saturating_mul(bytes_of_point);
        let found = if bytes > caches.largest {
            Found::BySize(Way::Past)
        } else if bytes <= caches.own {
            Found::BySize(Way::Through)
        } else {
            Found::ByMeasuring(Arc::new(Measurement::of(points, bytes)))
        };
        Self { least_points: caches.own / bytes_of_point, found }
    }

    /// Calls `body` with the way that it is to go, to compute `part` of the `tile` of a launch. Any thread may, with other
    /// parts at the same time.
    #[inline]
    pub fn store<R>(&self, tile: Tile, part: Tile, body: impl FnOnce(Way) -> R) -> R {
        let Turn { way, counts } = self.turn(tile, part);
        let begun = counts.then(Instant::now);
        let result = body(way);
        if let (Some(begun), Found::ByMeasuring(measurement)) = (begun, &self.found) {
            measurement.took(way, begun.elapsed().as_secs_f64() / part.points() as f64);
        }
        result
    }

    fn turn(&self, tile: Tile, part: Tile) -> Turn {
        let by_size = |way| Turn { way, counts: false };
        match &self.found {
            _ if tile.points() <= self.least_points => by_size(Way::Through),
            Found::BySize(way) => by_size(*way),
            Found::ByMeasuring(measurement) => measurement.turn(part.points()),
        }
    }
}

/// What launches have found.
#[derive(Debug)]
struct Measurement {
    /// Of a launch.
    points: u64,
    /// Launches of each way, one after the other, and one more that does not count: it finds in the caches what the
    /// other way has left there.
    measured: u64,
    /// Points that have been computed, or are being: how many launches there were, however they are cut into parts.
    begun: AtomicU64,
    /// The least time for a point by each way, as the bits of what has the same order.
    least: [AtomicU64; Way::ALL.len()],
}

/// How some points are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    way: Way,
    /// Whether the time that it takes counts.
    counts: bool,
}

impl Measurement {
    fn of(points: usize, bytes: usize) -> Self {
        let never = || AtomicU64::new(f64::INFINITY.to_bits());
        Self {
            points: points as u64,
            measured: (MEASURED_BYTES / bytes).max(LEAST_MEASURED) as u64,
            begun: AtomicU64::new(0),
            least: Way::ALL.map(|_| never()),
        }
    }

    /// How to compute so many points more.
    fn turn(&self, points: usize) -> Turn {
        let one_way = self.measured + 1;
        let launch = self.begun.fetch_add(points as u64, Relaxed) / self.points % (one_way * PERIOD);
        let measured = usize::try_from(launch / one_way).ok().and_then(|index| Way::ALL.get(index));
        let Some(way) = measured.copied() else {
            return Turn { way: self.best(), counts: false };
        };
        let is_first = launch.is_multiple_of(one_way);
        if is_first {
            self.least[way as usize].store(f64::INFINITY.to_bits(), Relaxed);
        }
        Turn { way, counts: !is_first }
    }

    /// The way that has been found to take least.
    fn best(&self) -> Way {
        let [through, ahead, past] = self.least.each_ref().map(|least| f64::from_bits(least.load(Relaxed)));
        if past < WORTHWHILE * through.min(ahead) {
            Way::Past
        } else if ahead < through {
            Way::Ahead
        } else {
            Way::Through
        }
    }

    /// Points that count took so long each.
    fn took(&self, way: Way, of_point: f64) {
        self.least[way as usize].fetch_min(of_point.to_bits(), Relaxed);
    }
}

/// The sizes of caches, in bytes.
#[derive(Clone, Copy)]
struct Caches {
    /// The largest one that a core does not share with others, as far as sizes tell: the second largest.
    own: usize,
    largest: usize,
}

impl Caches {
    /// What a machine is taken to have that does not say.
    const USUAL: Self = Self { own: 1 << 20, largest: 32 << 20 };

    /// What the system says of the first core, read once.
    fn of_this_machine() -> Self {
        static CACHES: OnceLock<Caches> = OnceLock::new();
        *CACHES.get_or_init(|| {
            let caches =
                std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
            let sizes = caches.filter_map(|cache| std::fs::read_to_string(cache.path().join("size")).ok());
            let mut sizes: Vec<_> = sizes.filter_map(|size| bytes_of(size.trim())).collect();
            sizes.sort_unstable();
            match sizes[..] {
                [.., own, largest] => Self { own, largest },
                _ => Self::USUAL,
            }
        })
    }
}

/// As the system writes the sizes of caches: `32768K`.
fn bytes_of(size: &str) -> Option<usize> {
    let digits = size.trim_end_matches(['K', 'M', 'G']);
    let unit = match &size[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHES: Caches = Caches { own: 1000, largest: 32_000 };

    fn tile(points: usize) -> Tile {
        Tile { start: [0, 0, 3], end: [1, 1, 3 + points] }
    }

    #[test]
    fn sizes_decide_where_they_can() {
        for (points, of_tile, expected) in [
            (500, 500, Way::Through),
            (16_001, 16_001, Way::Past),
            // What computes the border of a large field.
            (16_001, 500, Way::Through),
            (16_001, 501, Way::Past),
        ] {
            let way = StoreWay::with(CACHES, points, 2);
            for _launch in 0..3 {
                let given = way.store(tile(of_tile), tile(of_tile), |way| way);
                assert_eq!(given, expected, "{of_tile} of {points} points");
            }
            assert!(!matches!(way.found, Found::ByMeasuring(_)));
        }
        for points in [501, 16_000] {
            assert!(matches!(StoreWay::with(CACHES, points, 2).found, Found::ByMeasuring(_)), "{points}");
        }
    }

    /// Launches of 12 points, each cut into two parts, with what a point takes by each way; how many of them went each.
    fn launch(measurement: &Measurement, launches: u64, takes: [f64; 3]) -> [u64; 3] {
        let mut counts = [0; 3];
        for launch in 0..launches {
            let parts = [5, 7].map(|points| measurement.turn(points));
            assert_eq!(parts[0], parts[1], "the parts of a launch");
            let Turn { way, counts: is_counted } = parts[0];
            counts[way as usize] += 1;
            if is_counted {
                // Some launches are disturbed.
                let disturbed = if launch % 3 == 0 { 10.0 } else { 1.0 };
                measurement.took(way, disturbed * takes[way as usize]);
            }
        }
        counts
    }

    #[test]
    fn most_launches_go_the_way_that_takes_least_and_all_follow_when_that_changes() {
        let measurement = Measurement::of(12, MEASURED_BYTES / 4);
        let period = 5 * PERIOD;
        let [fast, slow] = [period - 10, 5];
        for (takes, expected) in [
            ([2.0, 2.0, 1.0], [slow, slow, fast]),
            ([1.0, 2.0, 2.0], [fast, slow, slow]),
            ([3.0, 1.9, 2.0], [slow, fast, slow]),
            ([3.0, 3.0, 2.0], [slow, slow, fast]),
            // Too little is gained past the caches.
            ([1.0, 1.1, 0.91], [fast, slow, slow]),
            ([1.1, 1.0, 0.91], [slow, fast, slow]),
        ] {
            assert_eq!(launch(&measurement, period, takes), expected, "{takes:?}");
        }
    }

    #[test]
    fn a_few_launches_are_measured_whatever_the_size() {
        let launches_of = |bytes| Measurement::of(1, bytes).measured;
        assert_eq!([MEASURED_BYTES / 16, MEASURED_BYTES, usize::MAX].map(launches_of), [16, 3, 3]);
    }

    #[test]
    fn the_time_of_what_is_called_counts() {
        // So many bytes that few launches are measured.
        let way = StoreWay::with(Caches { own: 1, largest: usize::MAX }, 64, MEASURED_BYTES);
        let launch = |way: &StoreWay| {
            way.store(tile(64), tile(64), |way| {
                let begun = Instant::now();
                while way != Way::Ahead && begun.elapsed().as_micros() < 500 {}
                way
            })
        };
        let measured = 3 * (LEAST_MEASURED + 1);
        let given: Vec<_> = (0..measured).map(|_| launch(&way)).collect();
        assert_eq!(given, Way::ALL.map(|way| [way; 4]).concat());
        assert_eq!([launch(&way.clone()), launch(&way)], [Way::Ahead; 2], "clones learn together");
    }

    #[test]
    fn sizes_as_the_system_writes_them() {
        assert_eq!(["32K", "1024K", "32M", "7"].map(bytes_of), [32 << 10, 1 << 20, 32 << 20, 7].map(Some));
        assert_eq!(["", "K", "3T"].map(bytes_of), [None; 3]);
        let Caches { own, largest } = Caches::of_this_machine();
        assert!(0 < own && own <= largest);
    }
}
