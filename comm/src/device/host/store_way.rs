//! Whether a kernel stores past the caches: as its field's size says, or as measuring does where that is not enough.
//!
//! A field that fits the largest cache by its size may still not stay there, since other ranks, and whoever else has
//! the machine's cores, use it too; no system says how much is left. What a field then loses is as much as one in a
//! free cache would lose past it. So launches take turns, and those that follow go past the caches if that took
//! less by a tenth.

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

/// How launches of one kernel on one field store: through the caches or past them. Clones learn together.
///
/// ```
/// use streamhalo_comm::device::{StoreWay, Tile, past_caches};
///
/// let tile = Tile { start: [0; 3], end: [1, 64, 64] };
/// let way = StoreWay::new::<f64>(tile);
/// // In the body of a kernel, which is given `part` of the tile:
/// let part = tile;
/// let took_rows_past = way.store(tile, part, |is_past| past_caches(|_stores| is_past));
/// assert!(!took_rows_past, "two generations of 32 KiB stay in a cache");
/// ```
#[derive(Debug, Clone)]
pub struct StoreWay {
    /// Launches of fewer points store through the caches.
    least_points: usize,
    found: Found,
}

#[derive(Debug, Clone)]
enum Found {
    Through,
    Past,
    ByMeasuring(Arc<Measurement>),
}

impl StoreWay {
    /// For a kernel that reads one generation of elements `T` and writes another, of which `tile` is what a launch
    /// computes, or the largest that one does. Fields that the caches of each core hold are stored through them; those
    /// that not even the largest cache of this machine holds go past them; for all between both ways are measured. The
    /// sizes are those that the system says the first core has.
    pub fn new<T: Element>(tile: Tile) -> Self {
        Self::with(Caches::of_this_machine(), tile.points(), 2 * size_of::<T>())
    }

    fn with(caches: Caches, points: usize, bytes_of_point: usize) -> Self {
        let bytes = points.saturating_mul(bytes_of_point);
        let found = if bytes > caches.largest {
            Found::Past
        } else if bytes <= caches.own {
            Found::Through
        } else {
            Found::ByMeasuring(Arc::new(Measurement::of(points, bytes)))
        };
        Self { least_points: caches.own / bytes_of_point, found }
    }

    /// Calls `body` with whether it is to store past the caches, to compute `part` of the `tile` of a launch. Any thread
    /// may, with other parts at the same time.
    #[inline]
    pub fn store<R>(&self, tile: Tile, part: Tile, body: impl FnOnce(bool) -> R) -> R {
        let is_large = tile.points() > self.least_points;
        let turn = match &self.found {
            Found::ByMeasuring(measurement) if is_large => {
                Some((measurement, measurement.turn(part.points())))
            }
            _ => None,
        };
        let is_past = turn.map_or(is_large && matches!(self.found, Found::Past), |(_, turn)| turn.is_past);
        let begun = turn.is_some_and(|(_, turn)| turn.counts).then(Instant::now);
        let result = body(is_past);
        if let (Some((measurement, _)), Some(begun)) = (turn, begun) {
            measurement.took(is_past, begun.elapsed().as_secs_f64() / part.points() as f64);
        }
        result
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
    /// The least time for a point through the caches and past them, as the bits of what has the same order.
    least: [AtomicU64; 2],
}

/// How some points are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    is_past: bool,
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
            least: [never(), never()],
        }
    }

    /// How to compute so many points more.
    fn turn(&self, points: usize) -> Turn {
        let one_way = self.measured + 1;
        let launch = self.begun.fetch_add(points as u64, Relaxed) / self.points % (one_way * PERIOD);
        if launch < 2 * one_way {
            let (is_past, launch) = (launch >= one_way, launch % one_way);
            if launch == 0 {
                self.least[usize::from(is_past)].store(f64::INFINITY.to_bits(), Relaxed);
            }
            return Turn { is_past, counts: launch > 0 };
        }
        let [through, past] = self.least.each_ref().map(|least| f64::from_bits(least.load(Relaxed)));
        Turn { is_past: past < WORTHWHILE * through, counts: false }
    }

    /// Points that count took so long each.
    fn took(&self, is_past: bool, of_point: f64) {
        self.least[usize::from(is_past)].fetch_min(of_point.to_bits(), Relaxed);
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
        for (points, of_tile, is_past) in [
            (500, 500, false),
            (16_001, 16_001, true),
            // What computes the border of a large field.
            (16_001, 500, false),
            (16_001, 501, true),
        ] {
            let way = StoreWay::with(CACHES, points, 2);
            for _launch in 0..3 {
                let given = way.store(tile(of_tile), tile(of_tile), |is_past| is_past);
                assert_eq!(given, is_past, "{of_tile} of {points} points");
            }
            assert!(!matches!(way.found, Found::ByMeasuring(_)));
        }
        for points in [501, 16_000] {
            assert!(matches!(StoreWay::with(CACHES, points, 2).found, Found::ByMeasuring(_)), "{points}");
        }
    }

    /// Launches of 12 points, each cut into two parts, with what a point takes through the caches and past them; how many
    /// of them went past, and how many through.
    fn launch(measurement: &Measurement, launches: u64, [through, past]: [f64; 2]) -> [u64; 2] {
        let mut counts = [0, 0];
        for launch in 0..launches {
            let parts = [5, 7].map(|points| measurement.turn(points));
            assert_eq!(parts[0], parts[1], "the parts of a launch");
            let Turn { is_past, counts: is_counted } = parts[0];
            counts[usize::from(!is_past)] += 1;
            if is_counted {
                // Some launches are disturbed.
                let disturbed = if launch % 3 == 0 { 10.0 } else { 1.0 };
                measurement.took(is_past, disturbed * if is_past { past } else { through });
            }
        }
        counts
    }

    #[test]
    fn most_launches_go_past_the_caches_where_that_pays_and_all_follow_when_that_changes() {
        let measurement = Measurement::of(12, MEASURED_BYTES / 4);
        let period = 5 * PERIOD;
        let [fast, slow] = [period - 5, 5];
        assert_eq!(launch(&measurement, period, [2.0, 1.0]), [fast, slow]);
        assert_eq!(launch(&measurement, period, [1.0, 2.0]), [slow, fast]);
        assert_eq!(launch(&measurement, period, [3.0, 2.0]), [fast, slow]);
        assert_eq!(launch(&measurement, period, [1.0, 0.91]), [slow, fast], "too little is gained");
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
            way.store(tile(64), tile(64), |is_past| {
                let begun = Instant::now();
                while !is_past && begun.elapsed().as_micros() < 500 {}
                is_past
            })
        };
        let measured = 2 * (LEAST_MEASURED + 1);
        let given: Vec<_> = (0..measured).map(|_| launch(&way)).collect();
        assert_eq!(given, [[false; 4], [true; 4]].concat());
        assert!(launch(&way.clone()) && launch(&way), "clones learn together");
    }

    #[test]
    fn sizes_as_the_system_writes_them() {
        assert_eq!(["32K", "1024K", "32M", "7"].map(bytes_of), [32 << 10, 1 << 20, 32 << 20, 7].map(Some));
        assert_eq!(["", "K", "3T"].map(bytes_of), [None; 3]);
        let Caches { own, largest } = Caches::of_this_machine();
        assert!(0 < own && own <= largest);
    }
}
