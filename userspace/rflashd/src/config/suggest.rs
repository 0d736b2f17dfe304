// SPDX-License-Identifier: GPL-2.0-only
//! What somebody who misspelt a word may have meant.

/// Longest word that is looked at: the distance costs its square.
const LONGEST: usize = 64;

/// Edits (insert, remove, replace, swap two neighbours) from one word to another.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let at = |row: &[usize], i: usize| row.get(i).copied().unwrap_or(usize::MAX / 2);
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replace = at(&last, j) + usize::from(a != b);
            let mut best = replace.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && from.get(i - 1) == Some(b) && to.get(j - 1) == Some(a);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

/// The word of `known` that is nearest, if it is near.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let near = |k: &&'a str| {
        let whole = distance(&word, k);
        // "hosts" for "allowed-hosts" and "warning" for "warn" are likely slips, too.
        let begins = word.starts_with(k) || k.starts_with(&word);
        let part = word.len() > 2 && (begins || k.split('-').any(|p| p == word));
        (if part { whole.min(1) } else { whole }, *k)
    };
    let (edits, best) = known.iter().map(near).min()?;
    (edits <= 1 + best.len() / 4).then_some(best)
}

/// "x" is unknown, and what may have been meant.
pub fn unknown(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(best) => format!("\"{word}\" is unknown, did you mean \"{best}\"?"),
        None => format!("\"{word}\" is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, want) in [
            ("", "", 0),
            ("abc", "", 3),
            ("slo-p95", "slo-p99", 1),
            ("wieght", "weight", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), want, "{a} {b}");
            assert_eq!(distance(b, a), want, "{b} {a}");
        }
    }

    #[test]
    fn what_was_meant() {
        let known = ["allowed-hosts", "address", "port", "slo-p95", "weight"];
        assert_eq!(nearest("adress", &known), Some("address"));
        assert_eq!(nearest("Weigth", &known), Some("weight"));
        assert_eq!(nearest("hosts", &known), Some("allowed-hosts"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
    }
}
