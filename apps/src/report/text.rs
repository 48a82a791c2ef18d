//! Numbers as people read them.

/// "2x1": extents, slowest axis first.
pub(super) fn by(extents: &[usize]) -> String {
    joined(extents, "x")
}

/// Extents with a separator of one's choice.
pub(crate) fn joined(extents: &[usize], separator: &str) -> String {
    let extents: Vec<String> = extents.iter().map(usize::to_string).collect();
    extents.join(separator)
}

/// A unit of time in which `seconds` has one to three digits before its point.
pub(super) fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e-3, "ms"),
        s if s >= 1e-6 => (1e-6, "µs"),
        s if s > 0.0 => (1e-9, "ns"),
        _ => (1.0, "s"),
    }
}

/// Four significant digits, none of them in an exponent.
pub(crate) fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// "12.3 ms".
pub(super) fn time(seconds: f64) -> String {
    let (unit, name) = time_unit(seconds);
    format!("{} {name}", significant(seconds / unit))
}

/// "64 B", "16.0 KiB".
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would print as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// "64 B", "16 KiB", "1000 B": without decimals.
pub(crate) fn whole_bytes(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_at_their_borders() {
        for (seconds, text) in [
            (0.0, "0.000 s"),
            (2.5e-9, "2.500 ns"),
            (1.234e-6, "1.234 µs"),
            (0.012_345, "12.35 ms"),
            (1.0, "1.000 s"),
            (4321.0, "4321 s"),
        ] {
            assert_eq!(time(seconds), text);
        }
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        for (count, text) in [(8, "8 B"), (1 << 16, "64 KiB"), (1025, "1025 B"), (3 << 20, "3 MiB")] {
            assert_eq!(whole_bytes(count), text);
        }
    }
}
