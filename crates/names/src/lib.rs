//! Finds the known name that a misspelled one probably stands for.
//!
//! Every message about an unknown name (of a key, a device, a policy, a command) gets its
//! suggestion here, so that all of them follow the same rule.

/// Returns the known name nearest to `name`, if it is near enough to be the intended one: at most
/// a third of the letters, and always up to one letter, may be wrong, missing, superfluous or
/// swapped with a neighbour. Upper and lower case count as equal. Ties go to the first.
///
/// The limit is that of rustc's suggestions (`find_best_match_for_name`): names that merely share
/// a part, such as `DRAM` and `FastDRAM`, do not match.
///
/// ```
/// use forebay_names::nearest;
/// assert_eq!(nearest("serv", ["trace", "serve"]), Some("serve"));
/// assert_eq!(nearest("show", ["info", "convert"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let mistakes_max = name.chars().count().max(3) / 3;
    let mistakes = |known: &str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    let counted = known.into_iter().map(|known| (mistakes(known), known));
    let near = counted.filter(|(mistakes, _)| *mistakes <= mistakes_max);
    near.min_by_key(|(mistakes, _)| *mistakes).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_seen_through() {
        let known = ["trace", "mrc", "info", "block_size", "FastDRAM", "s3-fifo", "completions"];
        for (name, meant) in [
            ("trcae", "trace"),
            ("mcr", "mrc"),
            ("inof", "info"),
            ("blocksize", "block_size"),
            ("fastdram", "FastDRAM"),
            ("S3FIFO", "s3-fifo"),
            ("complétions", "completions"),
        ] {
            assert_eq!(nearest(name, known), Some(meant), "{name}");
        }
    }

    #[test]
    fn names_that_share_a_part_or_little_are_not_meant() {
        let known = ["FastDRAM", "SlowHDD", "trace", "lru"];
        for name in ["DRAM", "hdd", "quantum", "x", ""] {
            assert_eq!(nearest(name, known), None, "{name}");
        }
        assert_eq!(nearest("trace", []), None);
    }

    #[test]
    fn fewer_mistakes_are_nearer_and_of_equals_the_first_is_meant() {
        assert_eq!(nearest("write-bakc", ["write-pack", "write-back"]), Some("write-back"));
        assert_eq!(nearest("vm3", ["vm1", "vm2"]), Some("vm1"));
    }
}
