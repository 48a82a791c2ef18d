//! Frames, when they are shown, and what a terminal gets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use streamhalo::{Device, WorldOptions};

use super::frame::Canvas;
use super::watcher::{Verdict, judge, said};
use super::{Screen, Size, Watcher, check};
use crate::app::{ApplicationRow, Between, Trial};
use crate::config::RunConfig;
use crate::ranks::on_threads;

/// All frames of a trial on the ranks of a layout.
fn frames(text: &str, layout: [usize; 2], size: Size) -> Vec<String> {
    let config = RunConfig::of(text);
    let application = ApplicationRow::open(&config).expect("is right");
    let frames = Mutex::new(Vec::new());
    let show = |frame| frames.lock().expect("nobody panics").push(frame);
    let done = on_threads(layout.iter().product(), WorldOptions::default(), |world| {
        let stream = Device::host().stream(world)?;
        let watcher = Watcher::new(size, config.app.steps, "a trial".to_owned(), &show);
        let between = Between { lookers: &[&watcher], ..Between::default() };
        let (backend, layout) = ("st-send", &layout[..]);
        let trial = Trial { world, stream: &stream, backend, layout, wants_state: false, between };
        application.run_trial(&trial).map(|_| ())
    });
    done.expect("nothing fails");
    frames.into_inner().expect("nobody panics")
}

const GLIDER: &str = concat!(
    "app.pattern = '",
    env!("CARGO_MANIFEST_DIR"),
    "/../configs/life/patterns/glider.rle'\napp.origin = [0, 0]\n"
);

/// The glider moves by one cell down and to the right in 4 generations.
#[test]
fn a_glider_in_halves_of_characters() {
    for layout in [[1, 1], [2, 3]] {
        let text = format!("{GLIDER}grid.cells = [5, 7]\napp.steps = 4\n");
        let frames = frames(&text, layout, Size { rows: 4, columns: 40 });
        assert_eq!(frames[0], " ▀▄    \n▀▀▀    \n       \ngeneration 0 of 4, 5 live; a trial", "{layout:?}");
        let last = frames.last().expect("there are some");
        assert_eq!(last, "  ▄    \n ▄▄█   \n       \ngeneration 4 of 4, 5 live; a trial", "{layout:?}");
    }
}

#[test]
fn a_glider_in_dots_of_braille_characters() {
    // One row too few for halves. Dots 1, 2, 3 and 7 are the left column of a character, 4, 5, 6 and 8 the right
    // one: the first one here has 4, 3 and 6, the second one 2 and 3.
    let text = format!("{GLIDER}grid.cells = [5, 6]\napp.steps = 0\n");
    assert_eq!(frames(&text, [2, 2], Size { rows: 3, columns: 5 }), ["⠬⠆⠀\n⠀⠀⠀\na tri"]);
}

/// Whoever watches wants to know what: the backend and the trial are told wherever there is room for them.
#[test]
fn what_is_shown_is_said_in_80_columns() {
    let title = "active-rma, warm-up, 4 x 4 ranks";
    let told = |generation: &str, cells: (f64, usize), columns: usize| {
        let said = said(generation, cells, title, columns);
        assert!(said.chars().count() <= columns && said.ends_with(title), "{said}");
        said.strip_suffix(title).expect("it does").to_owned()
    };
    let (first, late) = ("generation 0 of 1000", "generation 1000000 of 1000000");
    assert_eq!(told(first, (1234.0, 1), 80), "generation 0 of 1000, 1234 live; ");
    assert_eq!(told(first, (1234.0, 16), 100), "generation 0 of 1000, 1234 live, a dot is 16 x 16 cells; ");
    assert_eq!(told(first, (12.0, 16), 80), "generation 0 of 1000, 12 live, dots of 16 x 16; ");
    assert_eq!(told(late, (12345.0, 16), 80), "generation 1000000 of 1000000, 12345 live; ");
    assert_eq!(told(late, (12345.0, 16), 70), "generation 1000000 of 1000000; ");
    assert_eq!(told(late, (12345.0, 16), 40), "");
}

#[test]
fn blocks_are_lit_where_more_live_than_on_average() {
    let canvas = Canvas::new([1, 32, 32], Size { rows: 3, columns: 4 });
    // Of 32 x 32 cells in 8 x 8 dots each stands for 4 x 4.
    assert_eq!((canvas.mosaic.side, canvas.mosaic.extents()), (4, [8, 8]));
    let mut live = vec![0.0; 64];
    live[9] = 1.0;
    let lonely = canvas.frame(&live, "said");
    assert_eq!(lonely, "⠐⠀⠀⠀\n⠀⠀⠀⠀\nsaid");
    // Others have more: where there are fewer than on average there is no dot.
    live.fill(8.0);
    live[9] = 7.0;
    assert_eq!(canvas.frame(&live, "said too much"), "⣯⣿⣿⣿\n⣿⣿⣿⣿\nsaid");
    assert_eq!(canvas.frame(&[16.0; 64], "all"), "⣿⣿⣿⣿\n⣿⣿⣿⣿\nall");
    assert_eq!(canvas.frame(&[0.0; 64], "none"), "⠀⠀⠀⠀\n⠀⠀⠀⠀\nnone");
}

/// None has fewer than on average, whichever part of a block is alive.
#[test]
fn blocks_that_are_alike_are_all_lit() {
    let canvas = Canvas::new([1, 40, 40], Size { rows: 3, columns: 4 });
    assert_eq!((canvas.mosaic.side, canvas.mosaic.extents()), (5, [8, 8]));
    for live in 1..=25 {
        let frame = canvas.frame(&[f64::from(live); 64], "all");
        assert_eq!(frame, "⣿⣿⣿⣿\n⣿⣿⣿⣿\nall", "{live} of 25");
    }
}

#[test]
fn frames_are_no_more_than_20_a_second_but_for_the_last() {
    let millis = Duration::from_millis;
    let shown = |steps| Verdict { is_shown: true, steps };
    let hidden = |steps| Verdict { is_shown: false, steps };
    assert_eq!(judge(None, None, false), shown(1), "the first one");
    // 10 steps in 10 ms: 50 steps are a frame, but from 10 it goes on to 40 at most.
    assert_eq!(judge(Some((10, millis(10))), Some(millis(60)), false), shown(40));
    assert_eq!(judge(Some((20, millis(20))), Some(millis(60)), false), shown(50));
    assert_eq!(judge(Some((20, millis(20))), Some(millis(20)), false), hidden(30), "what is left");
    assert_eq!(judge(Some((20, millis(20))), Some(millis(20)), true), shown(50), "the last one");
    assert_eq!(judge(Some((3, millis(900))), Some(millis(900)), false), shown(1), "every step");
    assert_eq!(judge(Some((5, Duration::ZERO)), Some(millis(60)), false), shown(20), "no time at all");
}

#[test]
fn a_long_trial_shows_few_of_its_generations() {
    let text = "app = { steps = 3000, pattern = 'random:1' }\ngrid.cells = [16, 16]\n";
    let since = std::time::Instant::now();
    let frames = frames(text, [1, 2], Size { rows: 24, columns: 80 });
    let most = since.elapsed().as_millis() / 50 + 2;
    assert!((2..=most).contains(&(frames.len() as u128)), "{} frames, at most {most}", frames.len());
    assert!(
        frames[0].contains("generation 0 of 3000") && frames.last().is_some_and(|f| f.contains("n 3000 of"))
    );
}

#[test]
fn the_terminal_is_given_back() {
    let mut written = Vec::new();
    drop(Screen::new(&mut written));
    assert!(written.is_empty(), "nothing was shown");
    let mut screen = Screen::new(&mut written);
    screen.show("ab\ncd");
    screen.show("e");
    drop(screen);
    let written = String::from_utf8(written).expect("is text");
    assert_eq!(written, "\x1b[?1049h\x1b[?25l\x1b[H\x1b[Kab\n\x1b[Jcd\x1b[H\x1b[Je\x1b[?25h\x1b[?1049l");
    // On its way out through a panic too.
    let mut written = Vec::new();
    let shown = catch_unwind(AssertUnwindSafe(|| {
        let mut screen = Screen::new(&mut written);
        screen.show("ab");
        panic!("in the middle of it");
    }));
    assert!(shown.is_err() && written.ends_with(b"\x1b[?25h\x1b[?1049l"));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let life = RunConfig::of("app.pattern = 'random:1'");
    assert!(check(&life, false).is_ok());
    let error = check(&life, true).expect_err("another one has the terminal").to_string();
    assert!(error.starts_with("--watch: is for ranks that `streamhalo run` starts itself"), "{error}");
    let error = check(&RunConfig::of("app.name = 'faces'"), false).expect_err("is not life").to_string();
    assert_eq!(error, "--watch: shows `life`, and this configuration is of `faces`");
}
