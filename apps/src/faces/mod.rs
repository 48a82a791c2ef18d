//! Faces: the nearest-neighbour pattern of CORAL-2's Nekbone, as the papers on stream-triggered
//! communication time it (2022, section V-A; 2023 on active RMA, sections 6.2 and 6.7).
//!
//! A block of spectral elements of order p has (p + 1)³ points an element. Points on faces, edges and
//! corners that elements share exist once in each of them: two, four or eight copies. A step replaces
//! every copy by the sum of all of them.
//!
//! Copies are stored next to each other: the points of all elements along an axis are one axis of a
//! field of `f64`, of (p + 1) times as many entries as there are elements. So the copies that another rank
//! has of a point are exactly one layer of its surface, and the faces, edges and corners that up to 26
//! neighbours send to each other are the exchange of one layer of ghosts.
//!
//! | what | where |
//! |---|---|
//! | the three nested loops and the six steps of the paper | [`driver`] |
//! | the sum of the copies of a point, in an order that is the same for every copy | `kernel` |
//! | the same by global node numbers, serially, element by element | `reference` |
//! | what the answer must be, and how far from it another one may be | `check` |

mod check;
pub(crate) mod driver;
mod extra;
mod kernel;
mod reference;

#[cfg(test)]
mod tests;
