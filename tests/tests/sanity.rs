use streamhalo::prelude::*;
use streamhalo::{WorldOptions, comm};

#[test]
fn gather_fills_ghosts() {
    for row in comm::backend::BACKENDS {
        for layout in [[2, 1, 1], [1, 2, 1], [2, 2, 1], [1, 1, 1], [1, 1, 3], [2, 2, 2]] {
            for kind in [streamhalo::StreamKind::Inline, streamhalo::StreamKind::Threaded] {
                for alternating in [false, true] {
                    let ranks = layout.iter().product();
                    let results =
                        World::threads(ranks, WorldOptions::default(), |world| -> Result<(), HaloError> {
                            let stream = Device::host()
                                .stream_with(&world, streamhalo::StreamOptions { kind, threads: 1 })?;
                            let grid = GlobalGrid::new([9, 7, 8], [true, true, true])?
                                .partition_as(&world, layout)?
                                .local(2)?;
                            let value = |g: [usize; 3], step: usize| {
                                (g[0] * 10000 + g[1] * 100 + g[2] + step * 1000000) as f64
                            };
                            if alternating {
                                let mut field = Alternating::<f64, 3>::zeros(&grid, Entity::Cell, &stream)?;
                                let mut halo =
                                    StreamHalo::new(&world, &stream, row.name, Pattern::All, 2, &field)?;
                                for step in 0..6 {
                                    field.now_mut().fill(|g, _| value(g, step))?;
                                    halo.enqueue_gather(&mut field)?;
                                    let all = field.now().copy_with_ghosts()?;
                                    for (index, v) in all.indexed_iter() {
                                        let g = grid
                                            .to_global(Entity::Cell, [index[0], index[1], index[2]])
                                            .unwrap();
                                        assert_eq!(
                                            *v,
                                            value(g, step),
                                            "{} {layout:?} {kind:?} at {index:?} step {step}",
                                            row.name
                                        );
                                    }
                                    field.swap();
                                }
                            } else {
                                let mut field = Array::<f64, 3>::zeros(&grid, Entity::Cell, &stream)?;
                                let mut halo =
                                    StreamHalo::new(&world, &stream, row.name, Pattern::All, 2, &field)?;
                                for step in 0..6 {
                                    field.fill(|g, _| value(g, step))?;
                                    halo.enqueue_gather(&mut field)?;
                                    let all = field.copy_with_ghosts()?;
                                    for (index, v) in all.indexed_iter() {
                                        let g = grid
                                            .to_global(Entity::Cell, [index[0], index[1], index[2]])
                                            .unwrap();
                                        assert_eq!(
                                            *v,
                                            value(g, step),
                                            "{} {layout:?} {kind:?} at {index:?} step {step}",
                                            row.name
                                        );
                                    }
                                }
                            }
                            Ok(())
                        })
                        .unwrap();
                    for result in results {
                        result.unwrap();
                    }
                }
            }
        }
    }
}
