// SPDX-License-Identifier: GPL-2.0-only
//! Strings in fixed-size fields.

/// The text of a fixed-size field: up to the first NUL, trailing blanks
/// removed, and everything that could harm a terminal replaced. For display
/// only; what is compared or sent back must be checked, not cleaned.
pub fn fixed_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let bytes = bytes.get(..end).unwrap_or_default();
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect::<String>()
        .trim_end()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_control_characters() {
        assert_eq!(fixed_text(b"Linux   "), "Linux");
        assert_eq!(fixed_text(b"abc\0def"), "abc");
        assert_eq!(fixed_text(b"a\x1b[2Jb"), "a\u{fffd}[2Jb");
        assert_eq!(fixed_text(b"\xff"), "\u{fffd}");
        assert_eq!(fixed_text(b""), "");
    }
}
