//! Fields in the files that ParaView reads: VTK's XML formats for images, which are grids with one spacing per
//! axis (<https://docs.vtk.org/en/latest/vtk_file_formats/vtkxml_file_format.html>).
//!
//! Three small texts, of which one carries the values as they are behind it: a library that also reads, and has
//! every other format of VTK, would be most of our dependencies.
//!
//! VTK names axes x, y, z, the fastest in memory first, which is our order from behind. Extents count points:
//! cells `i` to `j - 1` lie between the points `i` and `j`.

use std::io::{self, Write};

use streamhalo::{ElementType, Tile};

use crate::app::Look;

/// The name of the values in the files.
const VALUES: &str = "cells";

/// Writes a rank's piece: an `.vti` file.
pub(super) fn write_piece(out: &mut impl Write, look: &Look<'_>) -> io::Result<()> {
    let (own, element) = (extent(look, &look.own()), element(look.element));
    // The extent of the whole is that of the piece: each of these files can be read alone.
    write!(
        out,
        "{}  <ImageData WholeExtent=\"{own}\" {}>\n    <Piece Extent=\"{own}\">\n      \
         <CellData Scalars=\"{VALUES}\">\n        \
         <DataArray type=\"{element}\" Name=\"{VALUES}\" format=\"appended\" offset=\"0\"/>\n      \
         </CellData>\n    </Piece>\n  </ImageData>\n  <AppendedData encoding=\"raw\">\n   _",
        head("ImageData"),
        frame(look),
    )?;
    out.write_all(&(look.bytes.len() as u64).to_le_bytes())?;
    out.write_all(&look.bytes)?;
    write!(out, "\n  </AppendedData>\n</VTKFile>\n")
}

/// The `.pvti` file that makes one field of the pieces with these names, by rank.
pub(super) fn whole(look: &Look<'_>, pieces: impl Iterator<Item = String>) -> String {
    let all = Tile { start: [0; 3], end: look.cells };
    let pieces = pieces
        .zip(&look.owned)
        .map(|(name, owned)| format!("    <Piece Extent=\"{}\" Source=\"{name}\"/>\n", extent(look, owned)));
    format!(
        "{}  <PImageData WholeExtent=\"{}\" GhostLevel=\"0\" {}>\n    <PCellData Scalars=\"{VALUES}\">\n      \
         <PDataArray type=\"{}\" Name=\"{VALUES}\"/>\n    </PCellData>\n{}  </PImageData>\n</VTKFile>\n",
        head("PImageData"),
        extent(look, &all),
        frame(look),
        element(look.element),
        pieces.collect::<String>(),
    )
}

/// The `.pvd` file that makes a series of fields, each after a number of steps.
pub(super) fn series<'n>(fields: impl Iterator<Item = (u64, &'n str)>) -> String {
    let fields = fields.map(|(step, name)| format!("    <DataSet timestep=\"{step}\" file=\"{name}\"/>\n"));
    format!(
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"Collection\" version=\"0.1\" byte_order=\"LittleEndian\">\n  \
         <Collection>\n{}  </Collection>\n</VTKFile>\n",
        fields.collect::<String>()
    )
}

fn head(kind: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"{kind}\" version=\"1.0\" byte_order=\"LittleEndian\" \
         header_type=\"UInt64\">\n"
    )
}

/// Where the point at index 0 is, and how far it is to the next ones.
fn frame(look: &Look<'_>) -> String {
    let [origin, spacing] =
        [look.geometry.origin, look.geometry.spacing].map(|[z, y, x]| format!("{x} {y} {z}"));
    format!("Origin=\"{origin}\" Spacing=\"{spacing}\"")
}

/// The points that cells lie between. An axis that the grid does not have has one point.
fn extent(look: &Look<'_>, cells: &Tile) -> String {
    let along = |axis: usize| {
        let points = if axis < 3 - look.dimensions { [0; 2] } else { [cells.start[axis], cells.end[axis]] };
        format!("{} {}", points[0], points[1])
    };
    [2, 1, 0].map(along).join(" ")
}

/// What VTK calls a type, such as `Float64`.
fn element(element: ElementType) -> String {
    let kind = match element.name().as_bytes()[0] {
        b'u' => "UInt",
        b'i' => "Int",
        _ => "Float",
    };
    format!("{kind}{}", 8 * element.bytes())
}
