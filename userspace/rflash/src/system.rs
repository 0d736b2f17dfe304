// SPDX-License-Identifier: GPL-2.0-only
//! What this program reads of the machine; tests have a directory instead.

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        System {
            root: PathBuf::from("/"),
        }
    }
}

impl System {
    /// A machine whose files are all under `root`.
    pub fn at(root: impl Into<PathBuf>) -> System {
        System { root: root.into() }
    }

    /// A path of this machine; `path` begins with a slash.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The contents of a file without white space around it.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_string())
    }

    /// Number of online CPUs.
    pub fn online_cpus(&self) -> Option<u32> {
        count_cpus(&self.read("/sys/devices/system/cpu/online")?)
    }
}

/// CPUs in a list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A temporary directory with files in it, removed at the end.
    pub(crate) struct Machine {
        root: PathBuf,
        pub system: System,
    }

    impl Machine {
        pub(crate) fn new(files: &[(&str, &str)]) -> Machine {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let root = std::env::temp_dir().join(format!("rflash-{}-{number}", std::process::id()));
            let machine = Machine {
                system: System::at(&root),
                root,
            };
            std::fs::create_dir_all(&machine.root).unwrap();
            for (path, text) in files {
                machine.write(path, text);
            }
            machine
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.system.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn cpu_lists() {
        for (list, count) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,8", Some(5)),
            ("1,3,5-6", Some(4)),
            ("", None),
            ("3-1", None),
            ("0-4294967295", None),
        ] {
            assert_eq!(count_cpus(list), count, "{list}");
        }
        let machine = Machine::new(&[("/sys/devices/system/cpu/online", "0-1\n")]);
        assert_eq!(machine.system.online_cpus(), Some(2));
    }
}
