// SPDX-License-Identifier: GPL-2.0-only
//! Output: one description of columns, from which come the table for people
//! and the JSON for programs.

use serde_json::{Map, Value};

/// How a value is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// As it is, at the left.
    Text,
    /// At the right.
    Number,
    /// Bytes, with a unit.
    Size,
    /// Microseconds.
    Micros,
    /// Not in tables.
    No,
}

/// One thing to say about a row.
pub struct Column<R> {
    /// Name in JSON.
    pub key: &'static str,
    /// Name for people.
    pub title: &'static str,
    pub show: Show,
    pub value: fn(&R) -> Value,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

/// Columns, one a line: key, title, how to show it, what it is.
macro_rules! columns {
    ($($key:literal, $title:literal, $show:ident, $value:expr;)*) => {
        &[$($crate::table::Column {
            key: $key,
            title: $title,
            show: $crate::table::Show::$show,
            value: $value,
        }),*]
    };
}
pub(crate) use columns;

/// A row as JSON object.
pub fn json<R>(columns: &[Column<R>], row: &R) -> Value {
    let fields = columns.iter().map(|c| (c.key.to_string(), (c.value)(row)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// A JSON document as it is printed.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Rows under a line of titles.
pub fn table<R>(columns: &[Column<R>], rows: &[R]) -> String {
    let columns: Vec<_> = columns.iter().filter(|c| c.show != Show::No).collect();
    let titles = columns.iter().map(|c| c.title.to_string()).collect();
    let mut lines: Vec<Vec<String>> = vec![titles];
    for row in rows {
        lines.push(
            columns
                .iter()
                .map(|c| text(c.show, &(c.value)(row)))
                .collect(),
        );
    }
    let width = |i: usize| {
        let widths = lines
            .iter()
            .filter_map(|l| l.get(i))
            .map(|cell| cell.chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let cells = line
            .iter()
            .zip(&columns)
            .zip(&widths)
            .map(|((cell, column), width)| match column.show {
                Show::Text | Show::No => format!("{cell:<width$}"),
                Show::Number | Show::Size | Show::Micros => format!("{cell:>width$}"),
            });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// One row as lines of title and value.
pub fn card<R>(columns: &[Column<R>], row: &R) -> String {
    let columns: Vec<_> = columns.iter().filter(|c| c.show != Show::No).collect();
    let width = columns
        .iter()
        .map(|c| c.title.chars().count())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for c in columns {
        let value = text(c.show, &(c.value)(row));
        out.push_str(&format!("{:<width$}  {value}\n", c.title));
    }
    out
}

/// A value for people.
pub fn text(show: Show, value: &Value) -> String {
    match (show, value) {
        (_, Value::Null) => "-".to_string(),
        (_, Value::Bool(true)) => "yes".to_string(),
        (_, Value::Bool(false)) => "no".to_string(),
        (Show::Size, Value::Number(n)) => size(n.as_u64().unwrap_or(0)),
        (Show::Micros, Value::Number(n)) => micros(n.as_f64().unwrap_or(0.0)),
        (_, Value::String(s)) if s.is_empty() => "-".to_string(),
        (_, Value::String(s)) => s.clone(),
        (_, other) => other.to_string(),
    }
}

/// Bytes in powers of 1024, three significant digits.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let number = format!("{value:.digits$}");
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => &number,
    };
    format!("{number} {}", UNITS.get(unit).copied().unwrap_or("EiB"))
}

/// Microseconds with as many digits as mean something.
fn micros(us: f64) -> String {
    if us < 99.95 {
        format!("{us:.1}")
    } else {
        format!("{us:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(&'static str, u64);

    const COLUMNS: &[Column<Row>] = columns![
        "name", "NAME", Text, |r| r.0.into();
        "id", "ID", No, |_| Value::Null;
        "size_bytes", "SIZE", Size, |r| r.1.into();
    ];

    #[test]
    fn one_description_for_both() {
        let rows = [Row("a", 1 << 40), Row("longer", 512)];
        assert_eq!(
            table(COLUMNS, &rows),
            "NAME     SIZE\na       1 TiB\nlonger  512 B\n"
        );
        assert_eq!(
            json(COLUMNS, &rows[0]).to_string(),
            "{\"name\":\"a\",\"id\":null,\"size_bytes\":1099511627776}"
        );
        assert_eq!(card(COLUMNS, &rows[1]), "NAME  longer\nSIZE  512 B\n");
    }

    #[test]
    fn sizes() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (4096, "4 KiB"),
            (1024 * 1024 - 1, "1 MiB"),
            (400_088_457_216, "373 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), want);
        }
        assert_eq!(micros(12.34), "12.3");
        assert_eq!(micros(1234.5), "1234");
    }
}
