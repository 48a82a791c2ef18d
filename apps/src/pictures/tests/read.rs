//! A reader of VTK's files that knows no more of the writer than the format says.

use std::fs;
use std::path::Path;

/// A field on a grid: axes as VTK has them, x first.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    /// First and last point per axis.
    pub(super) extent: [[usize; 2]; 3],
    pub(super) origin: [f64; 3],
    pub(super) spacing: [f64; 3],
    pub(super) element: String,
    /// x runs fastest.
    pub(super) values: Vec<u8>,
}

/// The value of an attribute of the first element with that name.
fn attribute(text: &str, element: &str, name: &str) -> String {
    let found = text.split(&format!("<{element} ")).nth(1).and_then(|rest| {
        let tag = rest.split('>').next()?;
        tag.split(&format!("{name}=\"")).nth(1)?.split('"').next()
    });
    found.unwrap_or_else(|| panic!("no `{name}` of `{element}` in {text}")).to_owned()
}

fn numbers<T: std::str::FromStr, const N: usize>(text: &str) -> [T; N] {
    let numbers: Vec<T> = text.split(' ').map(|word| word.parse().ok().expect("is a number")).collect();
    numbers.try_into().ok().expect("are as many")
}

fn extent(text: &str) -> [[usize; 2]; 3] {
    let [x0, x1, y0, y1, z0, z1] = numbers(text);
    [[x0, x1], [y0, y1], [z0, z1]]
}

/// Cells per axis; an axis with one point has one layer of them.
fn cells([first, last]: [usize; 2]) -> usize {
    (last - first).max(1)
}

fn bytes_of(element: &str) -> usize {
    match element {
        "UInt8" => 1,
        "Float32" => 4,
        "Float64" => 8,
        other => panic!("`{other}` is no type"),
    }
}

fn check_head(text: &str, kind: &str) {
    assert!(text.starts_with("<?xml version=\"1.0\"?>\n"));
    assert_eq!(attribute(text, "VTKFile", "type"), kind);
    assert_eq!(attribute(text, "VTKFile", "byte_order"), "LittleEndian");
}

/// An `.vti` file.
pub(super) fn piece(path: &Path) -> Field {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mark: &[u8] = b"<AppendedData encoding=\"raw\">";
    let place = bytes.windows(mark.len()).position(|window| window == mark).expect("has data");
    let text = std::str::from_utf8(&bytes[..place]).expect("is text");
    check_head(text, "ImageData");
    assert_eq!(attribute(text, "VTKFile", "header_type"), "UInt64");
    assert_eq!(attribute(text, "DataArray", "format"), "appended");
    assert_eq!(attribute(text, "DataArray", "offset"), "0");
    let rest = &bytes[place + mark.len()..];
    // The first character that is no blank is an underscore, and belongs to neither side.
    let start = rest.iter().position(|byte| !byte.is_ascii_whitespace()).expect("has data");
    assert_eq!(rest[start], b'_');
    let (count, rest) = rest[start + 1..].split_at(8);
    let count = u64::from_le_bytes(count.try_into().expect("are 8")) as usize;
    let (values, tail) = rest.split_at(count);
    let tail: String = std::str::from_utf8(tail).expect("is text").split_whitespace().collect();
    assert_eq!(tail, "</AppendedData></VTKFile>");
    let field = Field {
        extent: extent(&attribute(text, "Piece", "Extent")),
        origin: numbers(&attribute(text, "ImageData", "Origin")),
        spacing: numbers(&attribute(text, "ImageData", "Spacing")),
        element: attribute(text, "DataArray", "type"),
        values: values.to_vec(),
    };
    assert_eq!(extent(&attribute(text, "ImageData", "WholeExtent")), field.extent);
    let cells: usize = field.extent.map(cells).iter().product();
    assert_eq!(count, cells * bytes_of(&field.element), "{}", path.display());
    field
}

/// A `.pvti` file with its pieces, which are in the same folder. Every cell is in one of them.
pub(super) fn whole(path: &Path) -> Field {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    check_head(&text, "PImageData");
    assert_eq!(attribute(&text, "PImageData", "GhostLevel"), "0");
    let element = attribute(&text, "PDataArray", "type");
    let whole = extent(&attribute(&text, "PImageData", "WholeExtent"));
    let [width, height, depth] = whole.map(cells);
    let bytes = bytes_of(&element);
    let mut values = vec![0; width * height * depth * bytes];
    let mut times = vec![0; width * height * depth];
    let origin = numbers(&attribute(&text, "PImageData", "Origin"));
    let spacing = numbers(&attribute(&text, "PImageData", "Spacing"));
    for tag in text.split("<Piece ").skip(1).map(|rest| format!("<Piece {rest}")) {
        let folder = path.parent().expect("has a folder");
        let piece = piece(&folder.join(attribute(&tag, "Piece", "Source")));
        assert_eq!(extent(&attribute(&tag, "Piece", "Extent")), piece.extent);
        assert_eq!((piece.origin, piece.spacing, &piece.element), (origin, spacing, &element));
        let mut own = piece.values.chunks_exact(bytes);
        let along = |axis: usize| (piece.extent[axis][0]..).take(cells(piece.extent[axis]));
        for z in along(2) {
            for y in along(1) {
                for x in along(0) {
                    let cell = (z * height + y) * width + x;
                    values[cell * bytes..][..bytes].copy_from_slice(own.next().expect("is that long"));
                    times[cell] += 1;
                }
            }
        }
    }
    assert!(times.iter().all(|times| *times == 1), "{times:?}");
    Field { extent: whole, origin, spacing, element, values }
}

/// A `.pvd` file: steps, and the fields after them.
pub(super) fn series(path: &Path) -> Vec<(u64, String)> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    check_head(&text, "Collection");
    let entries = text.split("<DataSet ").skip(1).map(|rest| format!("<DataSet {rest}"));
    let step = |tag: &str| attribute(tag, "DataSet", "timestep").parse().expect("is a number");
    entries.map(|tag| (step(&tag), attribute(&tag, "DataSet", "file"))).collect()
}
