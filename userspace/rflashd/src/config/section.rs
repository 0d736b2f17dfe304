// SPDX-License-Identifier: GPL-2.0-only
//! Tables of the file, described once: the type, the parser, `--print-config`
//! and the reference all come from the same lines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeValue;

use super::value::Wrong;

/// Where a table stands. Two tables that say the same are equal wherever they
/// stand.
#[derive(Clone, Debug, Default)]
pub struct Place {
    pub file: Arc<PathBuf>,
    /// 1 is the first; 0: it stands nowhere, all is default.
    pub line: usize,
    lines: Vec<(&'static str, usize)>,
}

impl PartialEq for Place {
    fn eq(&self, _: &Place) -> bool {
        true
    }
}

impl Place {
    pub fn new(file: &Arc<PathBuf>, line: usize) -> Place {
        Place {
            file: Arc::clone(file),
            line,
            lines: Vec::new(),
        }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The line of a key; of the table when the key is not given.
    pub fn line_of(&self, key: &str) -> usize {
        let found = self.lines.iter().find(|(k, _)| *k == key);
        found.map_or(self.line, |(_, line)| *line)
    }

    /// Whether the key is given.
    pub fn has(&self, key: &str) -> bool {
        self.lines.iter().any(|(k, _)| *k == key)
    }

    pub fn note(&mut self, key: &'static str, line: usize) {
        self.lines.push((key, line));
    }
}

/// When a change takes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a reload.
    Reload,
    /// At the next start.
    Restart,
}

/// What the reference says of a key.
#[derive(Clone, Debug)]
pub struct Key {
    pub name: &'static str,
    /// Sentences, one a line.
    pub about: &'static [&'static str],
    pub allowed: String,
    /// In TOML; `None`: unset.
    pub default: Option<String>,
    pub required: bool,
    pub when: When,
}

/// A table of the file.
pub trait Section: Sized {
    /// As in `[[device]]`.
    const HEADER: &'static str;
    const ABOUT: &'static [&'static str];
    const NAMES: &'static [&'static str];

    /// All keys at their defaults.
    fn at(place: Place) -> Self;
    fn place(&self) -> &Place;
    fn place_mut(&mut self) -> &mut Place;
    /// Set a key of `NAMES`.
    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Wrong>;
    fn keys() -> Vec<Key>;
    /// Keys that are set or have a default, in TOML.
    fn show(&self) -> Vec<(&'static str, String)>;
}

/// A struct whose fields are the keys of a table. After each field: its key,
/// its default, whether it is `required` or `optional`, and when a change takes
/// hold.
macro_rules! section {
    (@required required) => { true };
    (@required optional) => { false };
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident = $header:literal {
            $(
                $(#[doc = $doc:literal])*
                pub $field:ident: $ty:ty = $key:literal, $default:expr, $need:ident, $when:ident;
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            pub place: $crate::config::section::Place,
            $($(#[doc = $doc])* pub $field: $ty,)*
        }

        impl $crate::config::section::Section for $name {
            const HEADER: &'static str = $header;
            const ABOUT: &'static [&'static str] = &[$($about),*];
            const NAMES: &'static [&'static str] = &[$($key),*];

            fn at(place: $crate::config::section::Place) -> Self {
                $name { place, $($field: $default),* }
            }

            fn place(&self) -> &$crate::config::section::Place {
                &self.place
            }

            fn place_mut(&mut self) -> &mut $crate::config::section::Place {
                &mut self.place
            }

            fn set(
                &mut self,
                key: &str,
                value: &toml::de::DeValue<'_>,
            ) -> Result<(), $crate::config::value::Wrong> {
                match key {
                    $($key => self.$field = <$ty as $crate::config::value::Value>::read(value)?,)*
                    _ => return Err($crate::config::value::Wrong::Type),
                }
                Ok(())
            }

            fn keys() -> Vec<$crate::config::section::Key> {
                vec![$($crate::config::section::Key {
                    name: $key,
                    about: &[$($doc),*],
                    allowed: <$ty as $crate::config::value::Value>::allowed(),
                    default: {
                        let default: $ty = $default;
                        $crate::config::value::Value::show(&default)
                    },
                    required: $crate::config::section::section!(@required $need),
                    when: $crate::config::section::When::$when,
                }),*]
            }

            fn show(&self) -> Vec<(&'static str, String)> {
                let mut shown = Vec::new();
                $(if let Some(text) = $crate::config::value::Value::show(&self.$field) {
                    shown.push(($key, text));
                })*
                shown
            }
        }

        impl Default for $name {
            fn default() -> Self {
                <Self as $crate::config::section::Section>::at(Default::default())
            }
        }
    };
}
pub(crate) use section;
