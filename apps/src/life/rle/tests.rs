//! The format's corners, every error at its exact place, and what comes back of what is written.

use proptest::prelude::*;

use super::*;

const GLIDER: [(usize, usize); 5] = [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)];

fn error(text: &str) -> RleError {
    Pattern::parse(text).expect_err(text)
}

#[test]
fn reads_remarks_header_and_body() {
    let text = "#N Glider\n#C first line\n#O somebody\n#c second line\n\
                x = 3, y = 3, rule = B3/S23\nbob$2bo$3o!\nanything at all # x = 7\n";
    let pattern = Pattern::parse(text).unwrap();
    assert_eq!((pattern.height, pattern.width), (3, 3));
    assert_eq!(pattern.cells, GLIDER);
}

#[test]
fn reads_every_spelling_of_the_header() {
    for header in [
        "x=3,y=3",
        "x = 3, y = 3",
        "  x = 3 ,\ty = 3 ,rule=b3/s23  ",
        "x = 3, y = 3, rule = 23/3",
        "\n\nx = 3, y = 3, rule = B3/S23",
    ] {
        let pattern = Pattern::parse(&format!("{header}\nbob$2bo$3o!")).unwrap();
        assert_eq!(pattern.cells, GLIDER, "{header}");
    }
}

#[test]
fn white_space_and_remarks_may_stand_between_any_two_tokens() {
    let text = "x = 3, y = 3\r\nb o\r\n\tb $ 2\r\nb o $\n#C within\n\n3\n\no\n!";
    let pattern = Pattern::parse(text).unwrap();
    assert_eq!(pattern.cells, GLIDER);
}

#[test]
fn dead_cells_and_rows_beyond_the_box_are_dropped() {
    let pattern = Pattern::parse("x = 1, y = 1\no9b4$7b!").unwrap();
    assert_eq!(pattern.cells, [(0, 0)]);
    assert_eq!(Pattern::parse("x = 0, y = 0\n!").unwrap(), Pattern::default());
}

#[test]
fn header_errors_have_their_place() {
    let header = |line, column, expected, found: &str| RleError::Header {
        line,
        column,
        expected,
        found: found.to_owned(),
    };
    assert_eq!(error(""), header(1, 1, "`x`", "the end of the text"));
    assert_eq!(error("#N no header\nbob$2bo$3o!"), header(2, 1, "`x`", "'b'"));
    assert_eq!(error("x 3"), header(1, 3, "`=`", "'3'"));
    assert_eq!(error("x = -3"), header(1, 5, "the width", "'-'"));
    assert_eq!(error("x = 3\ny = 3\n!"), header(1, 6, "`,`", "the end of the line"));
    assert_eq!(error("x = 3, z = 3"), header(1, 8, "`y`", "'z'"));
    assert_eq!(error("x = 3, y ="), header(1, 11, "the height", "the end of the text"));
    assert_eq!(error("x = 3, y = 3 o!"), header(1, 14, "`,` or the end of the line", "'o'"));
    assert_eq!(error("x = 3, y = 3, ruel = B3"), header(1, 15, "`rule`", "'r'"));
    assert_eq!(error("x = 3, y = 3, rule =\r\n!"), header(1, 21, "a rule", "the end of the line"));
    assert_eq!(
        error("x = 9999999999, y = 1\n!"),
        RleError::NumberOutOfRange { line: 1, column: 5, least: 0, found: "9999999999".into() }
    );
}

#[test]
fn other_rules_are_refused_by_name() {
    let refused = |rule: &str| RleError::UnsupportedRule { line: 2, column: 22, found: rule.into() };
    for rule in ["B36/S23", "B3/S23:T100,100", "HighLife"] {
        assert_eq!(error(&format!("#N X\nx = 3, y = 3, rule = {rule} \r\n!")), refused(rule));
    }
    let message = refused("B36/S23").to_string();
    assert_eq!(message, "line 2, column 22: the rule B36/S23 is not supported, expected B3/S23");
}

#[test]
fn body_errors_have_their_place() {
    assert_eq!(
        error("x = 3, y = 3\nbob$\n2bq$3o!"),
        RleError::UnknownCharacter { line: 3, column: 3, found: 'q' }
    );
    // Columns are characters, not bytes, and a remark begins its line.
    assert_eq!(
        error("x = 3, y = 3\nb\u{3000}é"),
        RleError::UnknownCharacter { line: 2, column: 3, found: 'é' }
    );
    assert_eq!(
        error("x = 3, y = 3\nbo #C late"),
        RleError::UnknownCharacter { line: 2, column: 4, found: '#' }
    );
    for (text, found) in [
        ("x = 3, y = 3\r\nbo$\r\nb2!", "'!'"),
        ("x = 3, y = 3\nbo$\nb2 7o!", "'7'"),
        ("x = 3, y = 3\nbo$\nb2\n", "the end of the text"),
    ] {
        let found = found.to_owned();
        assert_eq!(error(text), RleError::CountWithoutTag { line: 3, column: 2, count: 2, found });
    }
    for digits in ["4294967296", "99999999999999999999", "0"] {
        let found = digits.to_owned();
        assert_eq!(
            error(&format!("x = 3, y = 3\nb{digits}o!")),
            RleError::NumberOutOfRange { line: 2, column: 2, least: 1, found }
        );
    }
    assert_eq!(error("x = 3, y = 3\nbob$2bo$3o\n\n"), RleError::MissingEnd { line: 4, column: 1 });
    assert_eq!(error("x = 3, y = 3"), RleError::MissingEnd { line: 1, column: 13 });
}

#[test]
fn live_cells_outside_of_the_box_have_their_place() {
    let outside = |line, column, y, x| RleError::OutsideBox { line, column, y, x, height: 2, width: 3 };
    assert_eq!(error("x = 3, y = 2\nb3o!"), outside(2, 2, 0, 3));
    assert_eq!(error("x = 3, y = 2\n3o$\n 3bo!"), outside(3, 4, 1, 3));
    assert_eq!(error("x = 3, y = 2\n5bo!"), outside(2, 3, 0, 5));
    assert_eq!(error("x = 3, y = 2\n2$bo!"), outside(2, 4, 2, 1));
    assert_eq!(error("x = 3, y = 2\n4294967295o!"), outside(2, 1, 0, 3));
    assert_eq!(
        outside(2, 4, 2, 1).to_string(),
        "line 2, column 4: expected live cells within the header's box of 2 rows and 3 columns, \
         found one in row 2, column 1 (counted from 0)"
    );
}

#[test]
fn an_absent_file_is_named() {
    let error = Pattern::read(Path::new("nowhere/glider.rle"), [1; 2]).unwrap_err();
    assert!(matches!(error, ReadError::Unreadable { .. }));
    assert!(error.to_string().starts_with("cannot read the pattern file nowhere/glider.rle: "));
}

#[test]
fn names_and_comments_may_be_in_any_encoding() {
    let folder = tempfile::tempdir().expect("can write");
    let path = folder.path().join("latin-1.rle");
    std::fs::write(&path, b"#N Gl\xe4nzer\nx = 1, y = 1\no!\n").expect("can write");
    assert_eq!(Pattern::read(&path, [1; 2]).expect("is a pattern").cells, [(0, 0)]);
}

/// A few letters, and more cells than there is memory for.
#[test]
fn what_does_not_fit_is_refused_before_it_is_expanded() {
    let folder = tempfile::tempdir().expect("can write");
    let path = folder.path().join("long.rle");
    for (text, cells) in
        [("x = 4294967295, y = 1\n4294967295o!", "1 x 4294967295"), ("x = 16, y = 17\n!", "17 x 16")]
    {
        std::fs::write(&path, text).expect("can write");
        let error = Pattern::read(&path, [16; 2]).expect_err("it does not fit").to_string();
        let expected = format!(
            "the pattern of {} has {cells} cells (y x x) and does not fit the grid of 16 x 16",
            path.display()
        );
        assert_eq!(error, expected);
    }
}

fn write(pattern: &Pattern) -> String {
    encode(pattern.height, pattern.width, pattern.cells.iter().copied())
}

#[test]
fn writes_the_shortest_text() {
    assert_eq!(encode(5, 9, GLIDER), "x = 9, y = 5, rule = B3/S23\nbo$2bo$3o!\n");
    assert_eq!(encode(4, 4, []), "x = 4, y = 4, rule = B3/S23\n!\n");
    assert_eq!(encode(9, 2, [(3, 1), (8, 0)]), "x = 2, y = 9, rule = B3/S23\n3$bo5$o!\n");
}

/// Boxes with runs of any length in them, so that counts and line breaks are exercised.
fn patterns() -> impl Strategy<Value = Pattern> {
    (0usize..40, 1usize..300)
        .prop_flat_map(|(height, width)| {
            let runs = prop::collection::vec((0..height.max(1), 0..width, 1usize..30), 0..60);
            (Just(height), Just(width), runs)
        })
        .prop_map(|(height, width, runs)| {
            let inside = |&(y, _): &(usize, usize)| y < height;
            let cells =
                runs.into_iter().flat_map(|(y, x, length)| (x..(x + length).min(width)).map(move |x| (y, x)));
            let mut cells: Vec<_> = cells.filter(inside).collect();
            cells.sort_unstable();
            cells.dedup();
            Pattern { height, width, cells }
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(pattern in patterns()) {
        let text = write(&pattern);
        prop_assert_eq!(Pattern::parse(&text).unwrap(), pattern);
        prop_assert!(text.lines().all(|line| line.len() <= LINE_CHARACTERS), "{}", text);
        let body = text.trim_end();
        prop_assert!(body.ends_with('!'));
        prop_assert!(!body.ends_with("$!") && !body.ends_with("b!"), "trailing dead cells: {}", text);
    }

    #[test]
    fn line_breaks_of_another_system_change_nothing(pattern in patterns()) {
        let text = format!("#N Glider\n{}", write(&pattern)).replace('\n', "\r\n");
        prop_assert_eq!(Pattern::parse(&text).unwrap(), pattern);
    }

    #[test]
    fn any_text_gives_a_pattern_or_an_error(text in "(x = [0-9]{1,3}, y = [0-9]{1,3}\n)?[bo$!0-9 \n#é]{0,80}") {
        if let Ok(pattern) = Pattern::parse(&text) {
            prop_assert!(pattern.cells.is_sorted_by(|a, b| a < b));
        }
    }
}
