//! Lists of CPUs as the kernel writes them: `0-3,6`.

/// Returns the numbers in a kernel list such as `0-3,6`, in ascending order. Returns `None` if the list is malformed or has more
/// than 65,536 numbers.
pub fn cpu_list(text: &str) -> Option<Vec<u32>> {
    const NUMBERS_MAX: usize = 65_536;
    let mut numbers = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || numbers.last().is_some_and(|previous| *previous >= first) {
            return None;
        }
        numbers.extend((first..=last).take(NUMBERS_MAX + 1));
        if numbers.len() > NUMBERS_MAX {
            return None;
        }
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::cpu_list;

    #[test]
    fn a_list_of_cpus_is_read_and_a_malformed_one_refused() {
        assert_eq!(cpu_list("0-3,6\n"), Some(vec![0, 1, 2, 3, 6]));
        assert_eq!(cpu_list("0"), Some(vec![0]));
        for nonsense in ["", "\n", "a", "3-1", "1,1", "0-", "0-4294967295", "-1"] {
            assert_eq!(cpu_list(nonsense), None, "{nonsense:?}");
        }
    }
}
