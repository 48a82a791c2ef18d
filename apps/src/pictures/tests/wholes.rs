//! The files for ParaView.

use super::{Folder, drawn, read, reference};

/// The pictures of a configuration have the reference's bits, whatever the layout.
fn same_bits(text: &str, layout: &[usize], every: u64, steps: &[u64], element: &str) {
    let folder = Folder::new();
    let config = folder.config(&format!("{text}\noutput.snapshot_every = {every}"));
    assert_eq!(drawn(&config, layout).expect("nothing fails"), [""; 0]);
    let name = &config.app.name;
    let series = read::series(&folder.snapshots().join(format!("{name}.pvd")));
    let expected: Vec<_> = steps.iter().map(|step| (*step, format!("{name}_{step:06}.pvti"))).collect();
    assert_eq!(series, expected, "{text}");
    for (step, file) in series {
        let field = read::whole(&folder.snapshots().join(file));
        let mut points = config.grid.cells.iter().rev().map(|cells| [0, *cells]).collect::<Vec<_>>();
        points.resize(3, [0, 0]);
        assert_eq!(field.extent.as_slice(), points);
        assert_eq!(field.element, element);
        assert!(field.values == reference(&config, step), "{text}, {layout:?}, step {step}");
    }
    // A piece for each rank, a whole and an image for each step, and the series.
    let ranks: usize = layout.iter().product();
    assert_eq!(folder.names().len(), steps.len() * (ranks + 2) + 1, "{:?}", folder.names());
}

#[test]
fn two_dimensions() {
    let life = "app = { steps = 7, pattern = 'random:3' }\ngrid.cells = [7, 10]";
    for layout in [[1, 1], [2, 1], [1, 3], [3, 2]] {
        same_bits(life, &layout, 3, &[0, 3, 6], "UInt8");
    }
    let wide = "app = { steps = 6, pattern = 'random:3' }\ngrid = { cells = [9, 8], periodic = false, halo = 2 }\n\
                run.exchange_every = 2";
    same_bits(wide, &[2, 2], 1, &[0, 1, 2, 3, 4, 5, 6], "UInt8");
}

#[test]
fn three_dimensions() {
    for (element, vtk) in [("f32", "Float32"), ("f64", "Float64")] {
        let text = format!(
            "app = {{ name = 'stencil3d', steps = 5, element = '{element}' }}\n\
             grid = {{ cells = [5, 6, 7], periodic = [true, false, true] }}"
        );
        for layout in [[1, 1, 1], [2, 1, 1], [1, 2, 3]] {
            same_bits(&text, &layout, 2, &[0, 2, 4], vtk);
        }
    }
}

#[test]
fn no_steps_and_rare_pictures_give_the_first_one() {
    let life = "grid.cells = [7, 10]\napp.pattern = 'random:3'\napp.steps = ";
    same_bits(&format!("{life}0"), &[1, 2], 1, &[0], "UInt8");
    same_bits(&format!("{life}4"), &[1, 2], 9_223_372_036_854_775_807, &[0], "UInt8");
}

#[test]
fn cells_are_where_the_equation_has_them() {
    let folder = Folder::new();
    let config = folder.config(
        "app = { name = 'stencil3d', steps = 0 }\noutput.snapshot_every = 1\n\
         grid = { cells = [4, 3, 8], periodic = [true, false, true] }",
    );
    drawn(&config, &[1, 1, 2]).expect("nothing fails");
    let field = read::whole(&folder.snapshots().join("stencil3d_000000.pvti"));
    // x, y, z. Values are at the middle of cells: at 0 where the axis is periodic, and otherwise one
    // spacing from its end.
    assert_eq!(field.spacing, [0.125, 0.25, 0.25]);
    assert_eq!(field.origin, [-0.0625, 0.125, -0.125]);
}

#[test]
fn a_run_takes_away_the_pictures_of_the_one_before() {
    let folder = Folder::new();
    let text = "grid.cells = [7, 10]\napp.pattern = 'random:3'\noutput.snapshot_every = 1\napp.steps = ";
    drawn(&folder.config(&format!("{text}3")), &[2, 2]).expect("nothing fails");
    // Those of another application are of an earlier run too.
    let other = "app = { name = 'stencil3d', steps = 9 }\ngrid.cells = [4, 4, 4]\noutput.snapshot_every = 3";
    drawn(&folder.config(other), &[1, 1, 2]).expect("nothing fails");
    assert!(folder.names().iter().all(|name| name.starts_with("stencil3d")), "{:?}", folder.names());
    std::fs::write(folder.snapshots().join(".stencil3d.pvd.unfinished"), "half").expect("can write");
    // `tree` has no pictures that could be of an earlier run.
    let mine = [
        "notes.txt",
        "life_1.pvti.txt",
        "other_000001.png",
        "tree_000001.png",
        "life_x.png",
        "life_000001_a.vti",
    ];
    for name in mine {
        std::fs::write(folder.snapshots().join(name), "mine").expect("can write");
    }
    drawn(&folder.config(&format!("{text}1")), &[1, 2]).expect("nothing fails");
    let expected = [
        "life.pvd",
        "life_000000.png",
        "life_000000.pvti",
        "life_000000_0.vti",
        "life_000000_1.vti",
        "life_000001.png",
        "life_000001.pvti",
        "life_000001_0.vti",
        "life_000001_1.vti",
        "life_000001_a.vti",
        "life_1.pvti.txt",
        "life_x.png",
        "notes.txt",
        "other_000001.png",
        "tree_000001.png",
    ];
    assert_eq!(folder.names(), expected);
}
