//! Fields as PNG images: one pixel a cell, or the mean of a block of cells where there are many.

use super::Mosaic;
use crate::app::Look;

/// No image is larger along a side: it is looked at as a whole.
pub(super) const MOST_PIXELS: usize = 1024;

/// What is no number. No colour of a scale is near it.
const NO_NUMBER: [u8; 3] = [255, 0, 255];

/// How values become colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    /// Cells that live, 1, are black; dead ones, 0, are white.
    LiveAndDead,
    /// Viridis, in which equal differences look equal, from the lowest pixel to the highest.
    Scale,
}

/// The image of a field, of which `mosaic` has these sums, as a file.
pub(super) fn png(look: &Look<'_>, name: &str, mosaic: &Mosaic, sums: &[f64], colours: Colours) -> Vec<u8> {
    let means = sums.iter().zip(mosaic.cells_of_blocks()).map(|(sum, cells)| sum / cells as f64);
    let means: Vec<f64> = means.collect();
    let (kind, pixels, said) = match colours {
        Colours::LiveAndDead => {
            let grey = |live: &f64| (255.0 * (1.0 - live)).round() as u8;
            (png::ColorType::Grayscale, means.iter().map(grey).collect(), "live cells are black".to_owned())
        }
        Colours::Scale => {
            let range @ [low, high] = range(&means);
            let pixels = means.iter().flat_map(|mean| colour(*mean, range)).collect::<Vec<u8>>();
            (png::ColorType::Rgb, pixels, format!("viridis from {low:e} to {high:e}"))
        }
    };
    let [height, width] = mosaic.extents().map(|pixels| u32::try_from(pixels).expect("there are few"));
    let mut description = format!("after {} steps; {said}", look.step);
    if look.dimensions == 3 {
        description += &format!("; plane z = {} of {}", mosaic.plane, look.cells[0]);
    }
    if mosaic.side > 1 {
        description += &format!("; each pixel is the mean of {0} x {0} cells", mosaic.side);
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(kind);
    encoder.set_depth(png::BitDepth::Eight);
    let texts = [("Title", name), ("Description", &description), ("Software", "streamhalo")];
    let added = texts.into_iter().try_for_each(|(key, text)| encoder.add_text_chunk(key.into(), text.into()));
    let written = added.and_then(|()| encoder.write_header()?.write_image_data(&pixels));
    written.expect("texts are short, pixels are as many as was said, and memory takes them");
    file
}

/// The lowest and the highest of all finite values; 0 and 0 if there are none.
fn range(values: &[f64]) -> [f64; 2] {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    [finite().reduce(f64::min), finite().reduce(f64::max)].map(Option::unwrap_or_default)
}

fn colour(value: f64, [low, high]: [f64; 2]) -> [u8; 3] {
    if value.is_nan() {
        return NO_NUMBER;
    }
    // Where all are the same it is the lowest colour for all.
    let place = if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
    let colorous::Color { r, g, b } = colorous::VIRIDIS.eval_continuous(place);
    [r, g, b]
}
