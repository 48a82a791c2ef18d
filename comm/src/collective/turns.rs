//! Who talks to whom in which round: plain arithmetic, the same on every rank.

/// What a rank does in a round of an allreduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing: the others fold their values, or spread the result.
    Rest,
    /// Gives its value to a lower rank, which takes part in its place.
    Fold(usize),
    /// Combines its value with that of a higher rank, for which it takes part from here on.
    Unite(usize),
    /// Both send what they have, and combine the two alike.
    Swap(usize),
    /// Everyone sends its value to everyone, and combines them all.
    All,
    /// Tells the result to a rank that has folded.
    Spread(usize),
    /// Gets it.
    Learn(usize),
}

/// The ranks that take part in the rounds behind the folding: a power of two of them. The first
/// `paired` of them stand for two ranks each, neighbours, and the others for themselves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    number: usize,
    paired: usize,
}

impl Parts {
    pub(crate) fn of(ranks: usize) -> Self {
        let number = 1 << ranks.ilog2();
        Self { number, paired: ranks - number }
    }

    /// The rank that takes part.
    pub(crate) fn rank(self, part: usize) -> usize {
        if part < self.paired { 2 * part } else { part + self.paired }
    }

    /// The part that a rank belongs to.
    pub(crate) fn part(self, rank: usize) -> usize {
        if rank < 2 * self.paired { rank / 2 } else { rank - self.paired }
    }

    /// The rank with which this one shares a part.
    pub(crate) fn pair(self, rank: usize) -> Option<usize> {
        (rank < 2 * self.paired).then_some(rank ^ 1)
    }

    /// How far apart the parts of a round are that combine their values, from the first round on.
    pub(crate) fn distances(self) -> impl Iterator<Item = usize> {
        (0..self.number.ilog2()).map(|round| 1 << round)
    }
}

/// The turns of a rank in an allreduce: all at once in one round, or by recursive doubling, which
/// folds first where the number of ranks is no power of two. As many on every rank.
pub(super) fn allreduce(rank: usize, ranks: usize, at_once: bool) -> Vec<Turn> {
    if at_once && ranks > 2 {
        return vec![Turn::All];
    }
    let parts = Parts::of(ranks);
    let mut turns = Vec::new();
    let pair = parts.pair(rank);
    if parts.paired > 0 {
        turns.push(match pair {
            None => Turn::Rest,
            Some(pair) if rank < pair => Turn::Unite(pair),
            Some(pair) => Turn::Fold(pair),
        });
    }
    let part = parts.part(rank);
    let takes_part = parts.rank(part) == rank;
    for distance in parts.distances() {
        turns.push(if takes_part { Turn::Swap(parts.rank(part ^ distance)) } else { Turn::Rest });
    }
    if parts.paired > 0 {
        turns.push(match pair {
            None => Turn::Rest,
            Some(pair) if rank < pair => Turn::Spread(pair),
            Some(pair) => Turn::Learn(pair),
        });
    }
    turns
}

/// The order in which an allreduce combines the values of all ranks: for each pair the value of the
/// second, higher rank is combined into that of the first. The result is the value of rank 0.
pub(crate) fn order(ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    let parts = Parts::of(ranks);
    let pairs = (0..parts.paired).map(|part| (2 * part, 2 * part + 1));
    pairs.chain(parts.distances().flat_map(move |distance| {
        let firsts = (0..parts.number).step_by(2 * distance);
        firsts.map(move |part| (parts.rank(part), parts.rank(part + distance)))
    }))
}

/// Whom a rank signals, and who signals it, in each round of a barrier.
pub(super) fn barrier(rank: usize, ranks: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    let others = || (0..ranks).filter(|other| *other != rank).collect::<Vec<_>>();
    let rounds = ranks.next_power_of_two().ilog2();
    match ranks {
        1 => Vec::new(),
        // One round, and every pair signals both ways: nobody has to say that a buffer is free.
        ..=AT_ONCE_RANKS => vec![(others(), others())],
        _ if ranks.is_power_of_two() => {
            (0..rounds).map(|round| (vec![rank ^ (1 << round)], vec![rank ^ (1 << round)])).collect()
        }
        _ => (0..rounds)
            .map(|round| (vec![(rank + (1 << round)) % ranks], vec![(rank + ranks - (1 << round)) % ranks]))
            .collect(),
    }
}

/// Up to so many ranks it is faster that all tell all than that they take two rounds.
pub(super) const AT_ONCE_RANKS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries an allreduce out with terms in place of numbers.
    fn terms(ranks: usize, at_once: bool) -> Vec<String> {
        let turns: Vec<Vec<Turn>> = (0..ranks).map(|rank| allreduce(rank, ranks, at_once)).collect();
        assert!(turns.iter().all(|own| own.len() == turns[0].len()));
        let mut values: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
        for round in 0..turns[0].len() {
            let before = values.clone();
            let sum = |low: usize, high: usize| format!("({}+{})", before[low], before[high]);
            for (rank, own) in turns.iter().enumerate() {
                match own[round] {
                    Turn::Rest => {}
                    Turn::Fold(peer) => assert_eq!(turns[peer][round], Turn::Unite(rank)),
                    Turn::Unite(peer) => {
                        assert_eq!(turns[peer][round], Turn::Fold(rank));
                        values[rank] = sum(rank, peer);
                    }
                    Turn::Swap(peer) => {
                        assert_eq!(turns[peer][round], Turn::Swap(rank));
                        values[rank] = sum(rank.min(peer), rank.max(peer));
                    }
                    Turn::Spread(peer) => assert_eq!(turns[peer][round], Turn::Learn(rank)),
                    Turn::Learn(peer) => {
                        assert_eq!(turns[peer][round], Turn::Spread(rank));
                        values[rank] = before[peer].clone();
                    }
                    Turn::All => values[rank] = in_order(&before),
                }
            }
        }
        values
    }

    fn in_order(values: &[String]) -> String {
        let mut values = values.to_vec();
        for (low, high) in order(values.len()) {
            values[low] = format!("({}+{})", values[low], values[high]);
        }
        values.swap_remove(0)
    }

    #[test]
    fn all_ranks_combine_all_values_in_the_same_order_in_both_ways() {
        for ranks in 1..=40 {
            let values: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
            let expected = in_order(&values);
            let digits = expected.split(|c: char| !c.is_ascii_digit()).filter(|term| !term.is_empty());
            assert!(digits.eq(values.iter().map(String::as_str)), "{expected} leaves ranks out");
            for at_once in [false, true] {
                assert_eq!(terms(ranks, at_once), vec![expected.clone(); ranks]);
            }
        }
        assert_eq!(terms(6, false)[3], "(((0+1)+(2+3))+(4+5))");
    }

    #[test]
    fn after_a_barrier_everyone_has_heard_of_everyone() {
        for ranks in 1..=40_usize {
            let talks: Vec<_> = (0..ranks).map(|rank| barrier(rank, ranks)).collect();
            let mut heard: Vec<Vec<bool>> =
                (0..ranks).map(|rank| (0..ranks).map(|other| other == rank).collect()).collect();
            for round in 0..talks[0].len() {
                let before = heard.clone();
                for (rank, own) in talks.iter().enumerate() {
                    for peer in &own[round].1 {
                        assert!(talks[*peer][round].0.contains(&rank));
                        for (known, new) in heard[rank].iter_mut().zip(&before[*peer]) {
                            *known |= new;
                        }
                    }
                }
            }
            assert!(heard.iter().flatten().all(|known| *known), "{ranks} ranks");
        }
    }
}
