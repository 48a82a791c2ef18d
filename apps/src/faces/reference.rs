//! Faces by global node numbers, serially.
//!
//! It shares nothing with the kernel but the initial values: elements are stored one after the other, each
//! with its own points, and there are neither ghosts nor neighbours. Every element adds its points to the
//! nodes of the whole mesh, by number, and then reads them back: the direct stiffness summation of spectral
//! element codes.

/// A whole mesh of elements.
pub(super) struct Reference {
    elements: [usize; 3],
    /// Of an element along each axis.
    points: usize,
    /// Of the whole mesh along each axis.
    nodes: [usize; 3],
    /// `[element][z][y][x]`.
    values: Vec<f64>,
    sums: Vec<f64>,
}

impl Reference {
    /// A mesh whose point number `i` of element `e` along an axis has the global place `points * e + i`
    /// there, of which `value` gives what it holds. Along a periodic axis the last node is the first.
    pub(super) fn new(
        elements: [usize; 3],
        points: usize,
        periodic: [bool; 3],
        value: impl Fn([usize; 3]) -> f64,
    ) -> Self {
        let nodes: [usize; 3] =
            std::array::from_fn(|axis| elements[axis] * (points - 1) + usize::from(!periodic[axis]));
        let mut mesh = Self { elements, points, nodes, values: Vec::new(), sums: Vec::new() };
        mesh.values = mesh.places().map(|(element, point)| value(mesh.global(element, point))).collect();
        mesh.sums = vec![0.0; nodes.into_iter().product()];
        mesh
    }

    /// Replaces every copy of a point by the sum of all of them.
    pub(super) fn step(&mut self) {
        self.sums.fill(0.0);
        let numbers: Vec<usize> = self.places().map(|(element, point)| self.node(element, point)).collect();
        for (value, node) in self.values.iter().zip(&numbers) {
            self.sums[*node] += value;
        }
        for (value, node) in self.values.iter_mut().zip(&numbers) {
            *value = self.sums[*node];
        }
    }

    /// The values by global place, row-major.
    pub(super) fn by_place(&self) -> Vec<f64> {
        let [depth, height, width] = self.elements.map(|elements| elements * self.points);
        let mut placed = vec![f64::NAN; depth * height * width];
        for ((element, point), value) in self.places().zip(&self.values) {
            let [z, y, x] = self.global(element, point);
            placed[(z * height + y) * width + x] = *value;
        }
        placed
    }

    /// Every element with each of its points, in the order in which they are stored.
    fn places(&self) -> impl Iterator<Item = ([usize; 3], [usize; 3])> + use<> {
        let (elements, points) = (self.elements, [self.points; 3]);
        all_below(elements).flat_map(move |element| all_below(points).map(move |point| (element, point)))
    }

    fn global(&self, element: [usize; 3], point: [usize; 3]) -> [usize; 3] {
        std::array::from_fn(|axis| element[axis] * self.points + point[axis])
    }

    /// The number of the node that a point of an element is.
    fn node(&self, element: [usize; 3], point: [usize; 3]) -> usize {
        (0..3).fold(0, |number, axis| {
            let along = (element[axis] * (self.points - 1) + point[axis]) % self.nodes[axis];
            number * self.nodes[axis] + along
        })
    }
}

/// All indices below the extents, the last axis fastest.
fn all_below([depth, height, width]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [z, y, x])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of elements of order 2 that holds 1, 2, 3, ...
    fn row(elements: usize, periodic: bool) -> Vec<f64> {
        let value = |[z, y, x]: [usize; 3]| if (z, y) == (0, 0) { x as f64 + 1.0 } else { 0.0 };
        let mut mesh = Reference::new([1, 1, elements], 3, [false, false, periodic], value);
        mesh.step();
        mesh.by_place()[..3 * elements].to_vec()
    }

    #[test]
    fn shared_points_are_summed() {
        assert_eq!(row(2, false), [1.0, 2.0, 7.0, 7.0, 5.0, 6.0]);
        assert_eq!(row(2, true), [7.0, 2.0, 7.0, 7.0, 5.0, 7.0]);
        // An element that is its own neighbour.
        assert_eq!(row(1, true), [4.0, 2.0, 4.0]);
    }

    #[test]
    fn a_step_multiplies_by_the_number_of_copies() {
        let mut mesh = Reference::new([2, 2, 2], 3, [false; 3], |_| 1.0);
        mesh.step();
        let found = mesh.by_place();
        let at = |[z, y, x]: [usize; 3]| found[(z * 6 + y) * 6 + x];
        assert_eq!([[0, 0, 0], [1, 1, 2], [0, 2, 3], [2, 3, 2]].map(at), [1.0, 2.0, 4.0, 8.0]);
    }
}
