//! Timelines of exchanges: what the streams and hosts of all ranks did in the last steps of a trial, on one clock.

mod chrome;

use serde::{Deserialize, Serialize};
use streamhalo::comm::timeline::{Activity, ClockOffset, Lane, Span, Timeline};

use super::files::OutputFile;
use super::plot::timeline_svg;
use crate::app::{END_MARK, step_mark, step_of_mark};
use crate::error::AppError;

pub use chrome::chrome_trace;

/// What ranks did with one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeTimeline {
    /// The application.
    pub app: String,
    /// The backend.
    pub backend: String,
    /// The fabric.
    pub fabric: String,
    /// Who carried messages out.
    pub executor: String,
    /// What kind of stream.
    pub stream: String,
    /// Ranks per axis, slowest axis first.
    pub layout: Vec<usize>,
    /// Cells per axis, of all ranks together.
    pub cells: Vec<usize>,
    /// Steps from one exchange to the next.
    pub exchange_every: u64,
    /// By rank.
    pub ranks: Vec<RankTimeline>,
}

/// What one rank did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankTimeline {
    /// Its clock against that of rank 0.
    pub clock: ClockOffset,
    /// In the order of their beginnings.
    pub spans: Vec<Span>,
    /// How many spans of the trial there was no room for.
    pub dropped: u64,
}

/// A span on rank 0's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) rank: usize,
    pub(super) span: &'a Span,
    /// Nanoseconds from the first begin of all ranks.
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

impl RankTimeline {
    /// Keeps what belongs to the steps from `first_step` on: each lane from its mark of that step to its mark of the
    /// end. All, if the application has marked no steps.
    pub(crate) fn cut(timeline: Timeline, first_step: u64, clock: ClockOffset) -> Self {
        let Timeline { mut spans, dropped, .. } = timeline;
        let first = step_mark(first_step);
        let mark = |name: &str, on_host: bool| {
            let mut marks = spans.iter().filter(|span| span.activity == Activity::Mark);
            marks.find(|span| span.name == name && (span.lane == Lane::Host) == on_host)
        };
        let limits = [false, true].map(|on_host| {
            let from = mark(&first, on_host).map_or(0, |span| span.begin_ns);
            let to = mark(END_MARK, on_host).map_or(u64::MAX, |span| span.end_ns);
            from..=to
        });
        spans.retain(|span| limits[usize::from(span.lane == Lane::Host)].contains(&span.begin_ns));
        Self { clock, spans, dropped }
    }
}

/// The files of a backend's timeline.
pub(super) fn timeline_names(backend: &str) -> [String; 2] {
    ["json", "svg"].map(|extension| format!("timeline-{backend}.{extension}"))
}

impl ExchangeTimeline {
    /// `timeline-BACKEND.json` and `timeline-BACKEND.svg`.
    ///
    /// # Errors
    ///
    /// [`AppError::Plot`] where the picture cannot be drawn.
    pub fn files(&self) -> Result<[OutputFile; 2], AppError> {
        let [json, svg] = timeline_names(&self.backend);
        Ok([OutputFile::new(json, chrome_trace(self)), OutputFile::new(svg, timeline_svg(self)?)])
    }

    /// How many spans of all ranks there was no room for.
    pub fn dropped(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.dropped).sum()
    }

    /// Every span, rank by rank.
    pub(super) fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        let on_clock = |rank: &RankTimeline, ns: u64| i128::from(ns) + i128::from(rank.clock.offset_ns);
        let begins = self
            .ranks
            .iter()
            .flat_map(move |rank| rank.spans.iter().map(move |span| on_clock(rank, span.begin_ns)));
        let origin = begins.min().unwrap_or(0);
        self.ranks.iter().enumerate().flat_map(move |(number, rank)| {
            rank.spans.iter().map(move |span| {
                let place = |ns| (on_clock(rank, ns) - origin) as u64;
                Placed { rank: number, span, begin_ns: place(span.begin_ns), end_ns: place(span.end_ns) }
            })
        })
    }

    /// Every lane of every rank that anything happened on.
    pub(super) fn lanes(&self) -> Vec<(usize, Lane)> {
        let mut lanes: Vec<_> = self.placed().map(|placed| (placed.rank, placed.span.lane)).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// From the begin of an exchange on the first rank that comes to it to that of the next one on the last rank:
    /// the last exchange that another one follows, or else the last one to the end. All, if no steps are marked.
    pub(super) fn window_ns(&self) -> (u64, u64) {
        let on_stream = |placed: &Placed<'_>| placed.span.lane == Lane::Stream(0);
        let exchange = |placed: &Placed<'_>| {
            let step = step_of_mark(placed.span)?;
            step.is_multiple_of(self.exchange_every).then_some(step)
        };
        let marks = || {
            let on_streams = self.placed().filter(on_stream);
            on_streams.filter_map(|placed| Some((exchange(&placed)?, placed.begin_ns)))
        };
        let mut steps: Vec<u64> = marks().map(|(step, _)| step).collect();
        steps.sort_unstable();
        steps.dedup();
        let begins = |step: u64| marks().filter(move |(of, _)| *of == step).map(|(_, begin_ns)| begin_ns);
        let end = self.placed().filter(on_stream).map(|placed| placed.end_ns).max().unwrap_or(0);
        match steps[..] {
            [] => (0, self.placed().map(|placed| placed.end_ns).max().unwrap_or(0)),
            [only] => (begins(only).min().unwrap_or(0), end),
            [.., one, next] => (begins(one).min().unwrap_or(0), begins(next).max().unwrap_or(end)),
        }
    }
}

/// What a lane is called.
pub(super) fn lane_name(lane: Lane) -> String {
    match lane {
        Lane::Host => "host".to_owned(),
        Lane::Stream(0) => "stream".to_owned(),
        Lane::Stream(number) => format!("stream {}", number + 1),
    }
}

/// What a span is called.
pub(super) fn span_name(span: &Span) -> String {
    match (span.activity, span.peer) {
        (Activity::Enqueue, _) => format!("enqueue {}", span.name),
        (_, Some(peer)) => format!("{} to {peer}", span.name),
        _ => span.name.clone().into_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A span of an invented timeline.
    pub(crate) fn span(lane: Lane, activity: Activity, name: &str, begin_ns: u64, end_ns: u64) -> Span {
        let name = name.to_owned().into();
        let (operation, peer, bytes, value) = (None, None, None, None);
        Span { lane, activity, name, begin_ns, end_ns, stream: 0, operation, peer, bytes, value }
    }

    /// Two ranks, of which the second has a clock that is 1000 ns ahead, with two steps and a wait in which
    /// something is sent.
    pub(crate) fn invented() -> ExchangeTimeline {
        let of_rank = |shift: u64| {
            let stream = |activity, name: &str, begin: u64, end: u64| {
                span(Lane::Stream(0), activity, name, begin + shift, end + shift)
            };
            let mut pack = stream(Activity::Pack, "pack", 120, 150);
            (pack.peer, pack.bytes, pack.value, pack.operation) = (Some(1), Some(64), Some(3), Some(4));
            let mut enqueue = span(Lane::Host, Activity::Enqueue, "send", 60 + shift, 80 + shift);
            enqueue.operation = Some(4);
            vec![
                enqueue,
                stream(Activity::Mark, "step 0", 100, 100),
                stream(Activity::Wait, "wait for <completions>", 110, 200),
                pack,
                stream(Activity::Kernel, "life", 200, 260),
                stream(Activity::Mark, "step 1", 300, 300),
                stream(Activity::Kernel, "life", 310, 350),
            ]
        };
        let rank = |shift: u64| RankTimeline {
            clock: ClockOffset { offset_ns: -(shift as i64), uncertainty_ns: shift / 100 },
            spans: of_rank(shift),
            dropped: shift / 500,
        };
        ExchangeTimeline {
            app: "life".to_owned(),
            backend: "st-send".to_owned(),
            fabric: "local".to_owned(),
            executor: "stream".to_owned(),
            stream: "threaded".to_owned(),
            layout: vec![2, 1],
            cells: vec![64, 64],
            exchange_every: 1,
            ranks: vec![rank(0), rank(1000)],
        }
    }

    #[test]
    fn ranks_are_put_on_one_clock() {
        let timeline = invented();
        let begins = |rank| -> Vec<u64> {
            timeline.placed().filter(|placed| placed.rank == rank).map(|placed| placed.begin_ns).collect()
        };
        assert_eq!(begins(0), [0, 40, 50, 60, 140, 240, 250]);
        assert_eq!(begins(0), begins(1));
        assert_eq!(timeline.window_ns(), (40, 240));
        let stream = Lane::Stream(0);
        assert_eq!(timeline.lanes(), [(0, Lane::Host), (0, stream), (1, Lane::Host), (1, stream)]);
    }

    #[test]
    fn the_window_of_one_exchange_goes_to_the_end() {
        let mut timeline = invented();
        timeline.exchange_every = 2;
        assert_eq!(timeline.window_ns(), (40, 290));
        timeline.ranks.iter_mut().for_each(|rank| rank.spans.retain(|span| step_of_mark(span).is_none()));
        assert_eq!(timeline.window_ns(), (0, 290));
    }

    #[test]
    fn lanes_are_cut_where_they_come_to_a_step() {
        let (host, stream) = (Lane::Host, Lane::Stream(0));
        let mut spans = vec![
            span(host, Activity::Mark, "step 4", 10, 11),
            span(host, Activity::Enqueue, "life", 12, 13),
            span(host, Activity::Mark, "step 5", 20, 21),
            span(stream, Activity::Kernel, "life", 25, 30),
            span(host, Activity::Enqueue, "life", 26, 27),
            span(stream, Activity::Mark, "step 5", 31, 31),
            span(Lane::Stream(1), Activity::Kernel, "extra", 32, 40),
            span(host, Activity::Mark, "end", 50, 51),
            span(stream, Activity::Mark, "end", 52, 52),
            span(host, Activity::Synchronize, "synchronize", 53, 60),
        ];
        let all = spans.clone();
        let timeline = Timeline { rank: 0, spans: all.clone(), dropped: 3 };
        let cut = RankTimeline::cut(timeline.clone(), 5, ClockOffset::default());
        let kept = [2, 4, 5, 6, 7, 8].map(|index: usize| all[index].clone());
        assert_eq!((cut.spans, cut.dropped), (kept.to_vec(), 3));
        // Marks that there was no room for, or that nobody has made.
        spans.retain(|span| span.activity != Activity::Mark);
        let timeline = Timeline { spans: spans.clone(), ..timeline };
        assert_eq!(RankTimeline::cut(timeline, 5, ClockOffset::default()).spans, spans);
    }
}
