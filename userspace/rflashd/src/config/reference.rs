// SPDX-License-Identifier: GPL-2.0-only
//! The reference of the configuration, made of the types: as a page of the
//! documentation and as rflashd.toml(5).

use super::header;
use super::section::{Key, Section, When};
use super::types::{Device, Discovery, Limits, Namespace, Server, Subsystem, Tenant, Timeouts};

/// A table and its keys.
pub struct Table {
    /// With its brackets.
    pub title: String,
    pub about: String,
    pub keys: Vec<Key>,
}

fn sentences(lines: &[&str]) -> String {
    let lines: Vec<&str> = lines.iter().map(|l| l.trim()).collect();
    lines.join(" ")
}

fn table<S: Section>(array: bool) -> Table {
    Table {
        title: header::<S>(array),
        about: sentences(S::ABOUT),
        keys: S::keys(),
    }
}

/// All tables in the order in which people write them.
pub fn tables() -> Vec<Table> {
    vec![
        table::<Server>(false),
        table::<Limits>(false),
        table::<Timeouts>(false),
        table::<Discovery>(false),
        table::<Device>(true),
        table::<Subsystem>(true),
        table::<Namespace>(true),
        table::<Tenant>(true),
    ]
}

impl Key {
    /// What it means, what it takes, and what it is when it is not given.
    fn facts(&self) -> (String, String) {
        let default = match (&self.default, self.required) {
            (_, true) => "It must be given.".to_string(),
            (None, _) => "Unset by default.".to_string(),
            (Some(value), _) => format!("Default: {value}."),
        };
        let when = match self.when {
            When::Reload => "A change takes hold at a reload.",
            When::Restart => "A change takes hold at the next start.",
        };
        (
            sentences(self.about),
            format!("Give {}. {default} {when}", self.allowed),
        )
    }
}

const EXAMPLE: &str = "\
[server]
cpus = \"2-3\"
metrics = \"127.0.0.1:9464\"

[[device]]
name = \"flash0\"
path = \"/dev/nvme0n1\"
cost-model = \"/etc/rflash/flash0.toml\"    # from: rflash calibrate

[[tenant]]
name = \"orders\"
nqn = \"nqn.2024-01.io.example:orders\"
device = \"flash0\"
offset = \"0 GiB\"
size = \"100 GiB\"
class = \"lc\"
slo-p95 = 500
slo-iops = 20000
slo-read-pct = 90

[[tenant]]
name = \"backup\"
nqn = \"nqn.2024-01.io.example:backup\"
device = \"flash0\"
offset = \"100 GiB\"
size = \"200 GiB\"
weight = 50
";

const INTRODUCTION: [&str; 3] = [
    "rflashd reads one file in TOML, /etc/rflash/rflashd.toml unless --config names another, and then the *.toml in the directory that its include names, in the order of their names. A key may be written with - or _.",
    "The files are checked as a whole before anything is opened. `rflashd --check` does only that. Every mistake is reported with its file and line; as long as there is one, a start fails, and a reload changes nothing.",
    "A change of a key takes hold at a reload (`systemctl reload rflashd`, SIGHUP) or at the next start, as said for each. A reload that changes a key of the second kind says so in the log and keeps what it was.",
];

/// Text as reST has it.
fn rst(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split('`').enumerate() {
        if i % 2 == 1 {
            out.push_str(&format!("``{part}``"));
        } else {
            out.push_str(&part.replace('*', "\\*"));
        }
    }
    out
}

fn heading(text: &str, line: char) -> String {
    let length = text.chars().count();
    format!("{text}\n{}\n\n", line.to_string().repeat(length))
}

/// Documentation/rflashd-config.rst.
pub fn page() -> String {
    let mut out = String::from(
        ".. SPDX-License-Identifier: GPL-2.0-only\n\
         .. Made of the types by `cargo run -p rflashd --example reference`; a test\n   \
         tells when it is not of this version.\n\n",
    );
    out.push_str(&heading("rflashd's configuration", '='));
    for paragraph in INTRODUCTION {
        out.push_str(&format!("{}\n\n", rst(paragraph)));
    }
    out.push_str("An example::\n\n");
    for line in EXAMPLE.lines() {
        let line = format!("    {line}");
        out.push_str(&format!("{}\n", line.trim_end()));
    }
    out.push('\n');
    for table in tables() {
        out.push_str(&heading(&table.title, '-'));
        out.push_str(&format!("{}\n\n", rst(&table.about)));
        for key in &table.keys {
            let (about, facts) = key.facts();
            out.push_str(&format!("``{}``\n", key.name));
            out.push_str(&format!("    {}\n\n    {}\n\n", rst(&about), rst(&facts)));
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Text as roff has it.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let text = text.replace('`', "\"").replace('\'', "\\(aq");
    match text.starts_with('.') {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// Documentation/man/rflashd.toml.5.
pub fn manual() -> String {
    let mut out = format!(
        ".\\\" SPDX-License-Identifier: GPL-2.0-only\n\
         .\\\" Made of the types by cargo run \\-p rflashd \\-\\-example reference \\-\\- man\n\
         .TH rflashd.toml 5 \"\" \"rflash {}\" \"File Formats\"\n\
         .SH NAME\nrflashd.toml \\- configuration of the flash server rflashd\n\
         .SH SYNOPSIS\n/etc/rflash/rflashd.toml, /etc/rflash/rflashd.d/*.toml\n\
         .SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    for (i, paragraph) in INTRODUCTION.iter().enumerate() {
        if i > 0 {
            out.push_str(".PP\n");
        }
        out.push_str(&format!("{}\n", roff(paragraph)));
    }
    for table in tables() {
        out.push_str(&format!(
            ".SH {}\n{}\n",
            roff(&table.title),
            roff(&table.about)
        ));
        for key in &table.keys {
            let (about, facts) = key.facts();
            out.push_str(&format!(
                ".TP\n\\fB{}\\fR\n{}\n{}\n",
                roff(key.name),
                roff(&about),
                roff(&facts)
            ));
        }
    }
    out.push_str(".SH EXAMPLE\n.nf\n");
    for line in EXAMPLE.lines() {
        out.push_str(&format!("{}\n", roff(line)));
    }
    out.push_str(
        ".fi\n.SH SEE ALSO\n\\fBrflashd\\fR(8), \\fBrflash\\fR(8), \\fBrflash\\-target\\fR(8)\n",
    );
    out
}
