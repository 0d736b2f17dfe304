// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's control ABI: the Rust side of `driver/uapi/rflash.h`, which
//! documents it. A test compares the two.

pub const GENL_NAME: &str = "rflash";
pub const GENL_VERSION: u8 = 1;

pub const HOSTID_LEN: usize = 16;
pub const QUEUE_SIZE_MIN: i64 = 16;
pub const QUEUE_SIZE_MAX: i64 = 1024;
pub const QUEUE_SIZE_DEFAULT: i64 = 128;
pub const KATO_DEFAULT: i64 = 5;
pub const KATO_MAX: i64 = 3600;
pub const RECONNECT_DELAY_DEFAULT: i64 = 10;
pub const RECONNECT_DELAY_MAX: i64 = 3600;
pub const CTRL_LOSS_TMO_DEFAULT: i64 = 600;
pub const FAST_IO_FAIL_TMO_DEFAULT: i64 = -1;
pub const TMO_MAX: i64 = 7 * 24 * 3600;
pub const TENANT_P95_MAX: i64 = 1_000_000;
pub const TENANT_IOPS_MAX: i64 = 100_000_000;
pub const TENANT_BLOCK_MIN: i64 = 512;
pub const TENANT_BLOCK_MAX: i64 = 1_048_576;
pub const TENANT_BLOCK_DEFAULT: i64 = 4096;
pub const TENANT_WEIGHT_MAX: i64 = 10_000;
pub const TENANT_WEIGHT_DEFAULT: i64 = 100;
pub const TCP_PORT: &str = "4420";
pub const TCP_DISC_PORT: &str = "8009";

pub const CMD_CONNECT: u8 = 1;
pub const CMD_DISCONNECT: u8 = 2;
pub const CMD_CTRL_GET: u8 = 3;
pub const CMD_STATS_GET: u8 = 4;
pub const CMD_EVENT: u8 = 5;

macro_rules! attributes {
    ($(#[$doc:meta])* $module:ident, $table:ident: $($name:ident = $value:literal),* $(,)?) => {
        $(#[$doc])*
        pub mod $module {
            $(pub const $name: u16 = $value;)*
            /// Every attribute with its name.
            pub const $table: &[(&str, u16)] = &[$((stringify!($name), $value)),*];
        }
    };
}

attributes! {
    /// Top-level attributes, also those of the nest `CTRL`.
    attr, ALL:
    PAD = 1, CTRL = 2, CTRL_ID = 3, TRANSPORT = 4, TRADDR = 5, TRSVCID = 6, HOST_TRADDR = 7,
    SUBSYS_NQN = 8, HOST_NQN = 9, HOST_ID = 10, NR_IO_QUEUES = 11, NR_POLL_QUEUES = 12,
    QUEUE_SIZE = 13, KATO = 14, RECONNECT_DELAY = 15, CTRL_LOSS_TMO = 16, FAST_IO_FAIL_TMO = 17,
    HDR_DIGEST = 18, DATA_DIGEST = 19, STATE = 20, RECONNECTS = 21, LAST_ERROR = 22, MODEL = 23,
    SERIAL = 24, FIRMWARE = 25, CNTLID = 26, NS = 27, QUEUE = 28, NS_INSTANCE = 29, STATS = 30,
    TENANT_CLASS = 31, TENANT_P95_US = 32, TENANT_IOPS = 33, TENANT_READ_PCT = 34,
    TENANT_BLOCK = 35, TENANT_WEIGHT = 36, TENANT_STATE = 37, TENANT_GRANTED = 38,
}

attributes! {
    /// One namespace.
    ns, ALL:
    PAD = 1, INSTANCE = 2, NSID = 3, WWID = 4, SIZE_BYTES = 5, BLOCK_SIZE = 6, READ_ONLY = 7,
}

attributes! {
    /// One I/O queue.
    queue, ALL:
    QID = 1, CPUS = 2, SRC_ADDR = 3, SRC_PORT = 4,
}

attributes! {
    /// Counters of one queue and direction.
    stats, ALL:
    PAD = 1, QID = 2, DIR = 3, IOS = 4, BYTES = 5, ERRORS = 6, LAT_SUM_NS = 7, LAT_MAX_NS = 8,
    BUCKETS = 9,
}

pub const STATS_READ: u32 = 0;
pub const STATS_WRITE: u32 = 1;

pub const HIST_SUB_BITS: u32 = 4;
pub const HIST_BUCKETS: usize = 592;
/// Bytes of one `struct rflash_bucket`: index, reserved, count.
pub const BUCKET_LEN: usize = 16;

/// State of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    New,
    Connecting,
    Live,
    Recovering,
    Reconnecting,
    Deleting,
    Dead,
    /// One that a newer driver has.
    Other(u32),
}

impl State {
    pub fn from_wire(value: u32) -> State {
        match value {
            0 => State::New,
            1 => State::Connecting,
            2 => State::Live,
            3 => State::Recovering,
            4 => State::Reconnecting,
            5 => State::Deleting,
            6 => State::Dead,
            other => State::Other(other),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            State::New => "new",
            State::Connecting => "connecting",
            State::Live => "live",
            State::Recovering => "recovering",
            State::Reconnecting => "reconnecting",
            State::Deleting => "deleting",
            State::Dead => "dead",
            State::Other(_) => "unknown",
        }
    }
}

pub const TENANT_LATENCY_CRITICAL: u32 = 1;
pub const TENANT_BEST_EFFORT: u32 = 2;

/// What came of asking the target for a promise, at the last connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TenantState {
    #[default]
    Unasked,
    Granted,
    /// By a reconnect, which goes on without.
    Refused,
    /// The target does not know tenants.
    Unsupported,
    /// One that a newer driver has.
    Other(u32),
}

impl TenantState {
    pub fn from_wire(value: u32) -> TenantState {
        match value {
            0 => TenantState::Unasked,
            1 => TenantState::Granted,
            2 => TenantState::Refused,
            3 => TenantState::Unsupported,
            other => TenantState::Other(other),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            TenantState::Unasked => "unasked",
            TenantState::Granted => "granted",
            TenantState::Refused => "refused",
            TenantState::Unsupported => "unsupported",
            TenantState::Other(_) => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header without comments.
    fn header() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../driver/uapi/rflash.h");
        let mut text = std::fs::read_to_string(path).unwrap();
        while let Some(open) = text.find("/*") {
            let close = open + text[open..].find("*/").unwrap();
            text.replace_range(open..close + 2, "");
        }
        text
    }

    /// Names of an enum in the header, in order, without the prefix; the
    /// closing `__…` members left out.
    fn members(header: &str, name: &str, prefix: &str) -> Vec<String> {
        let start = header.find(&format!("enum {name} {{")).unwrap();
        let body = &header[start..];
        let body = &body[..body.find("};").unwrap()];
        let lines = body.lines().filter(|l| !l.starts_with('#'));
        lines
            .filter_map(|l| l.trim().trim_end_matches(',').strip_prefix(prefix))
            .map(str::to_string)
            .collect()
    }

    fn define(header: &str, name: &str) -> String {
        let line = header
            .lines()
            .find(|l| l.starts_with("#define") && l.split_whitespace().nth(1) == Some(name))
            .unwrap_or_else(|| panic!("no {name} in the header"));
        let value = line.split_once(name).unwrap().1;
        value.trim().trim_matches(['"', '(', ')']).to_string()
    }

    #[test]
    fn attributes_are_those_of_the_header() {
        let h = header();
        for (name, prefix, ours) in [
            ("rflash_attr", "RFLASH_A_", attr::ALL),
            ("rflash_ns_attr", "RFLASH_NS_A_", ns::ALL),
            ("rflash_queue_attr", "RFLASH_QUEUE_A_", queue::ALL),
            ("rflash_stats_attr", "RFLASH_STATS_A_", stats::ALL),
        ] {
            let theirs = members(&h, name, prefix);
            assert_eq!(theirs[0], "UNSPEC", "{name}");
            assert_eq!(theirs.len(), ours.len() + 1, "{name}");
            for (text, value) in ours {
                assert_eq!(theirs[usize::from(*value)], *text, "{name}");
            }
        }
    }

    #[test]
    fn commands_and_states_are_those_of_the_header() {
        let h = header();
        let commands = members(&h, "rflash_genl_cmd", "RFLASH_CMD_");
        for (name, value) in [
            ("CONNECT", CMD_CONNECT),
            ("DISCONNECT", CMD_DISCONNECT),
            ("CTRL_GET", CMD_CTRL_GET),
            ("STATS_GET", CMD_STATS_GET),
            ("EVENT", CMD_EVENT),
        ] {
            assert_eq!(commands[usize::from(value)], name);
        }
        let states = members(&h, "rflash_ctrl_state", "RFLASH_CTRL_");
        assert_eq!(states.len(), 7);
        for (i, name) in states.iter().enumerate() {
            assert_eq!(State::from_wire(i as u32).name(), name.to_lowercase());
        }
        let states = members(&h, "rflash_tenant_state", "RFLASH_TENANT_STATE_");
        assert_eq!(states.len(), 4);
        for (i, name) in states.iter().enumerate() {
            assert_eq!(TenantState::from_wire(i as u32).name(), name.to_lowercase());
        }
        let classes = members(&h, "rflash_tenant_class", "RFLASH_TENANT_");
        assert_eq!(classes, ["NONE", "LATENCY_CRITICAL", "BEST_EFFORT"]);
        assert_eq!((TENANT_LATENCY_CRITICAL, TENANT_BEST_EFFORT), (1, 2));
        let dirs = members(&h, "rflash_stats_dir", "RFLASH_STATS_");
        assert_eq!(dirs, ["READ", "WRITE"]);
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        let h = header();
        for (name, value) in [
            ("RFLASH_GENL_VERSION", i64::from(GENL_VERSION)),
            ("RFLASH_NQN_MAX", nvme_wire::nqn::MAX as i64),
            ("RFLASH_HOSTID_LEN", HOSTID_LEN as i64),
            ("RFLASH_QUEUE_SIZE_MIN", QUEUE_SIZE_MIN),
            ("RFLASH_QUEUE_SIZE_MAX", QUEUE_SIZE_MAX),
            ("RFLASH_QUEUE_SIZE_DEFAULT", QUEUE_SIZE_DEFAULT),
            ("RFLASH_KATO_DEFAULT", KATO_DEFAULT),
            ("RFLASH_KATO_MAX", KATO_MAX),
            ("RFLASH_RECONNECT_DELAY_DEFAULT", RECONNECT_DELAY_DEFAULT),
            ("RFLASH_RECONNECT_DELAY_MAX", RECONNECT_DELAY_MAX),
            ("RFLASH_CTRL_LOSS_TMO_DEFAULT", CTRL_LOSS_TMO_DEFAULT),
            ("RFLASH_FAST_IO_FAIL_TMO_DEFAULT", FAST_IO_FAIL_TMO_DEFAULT),
            ("RFLASH_TENANT_P95_MAX", TENANT_P95_MAX),
            ("RFLASH_TENANT_IOPS_MAX", TENANT_IOPS_MAX),
            ("RFLASH_TENANT_BLOCK_MIN", TENANT_BLOCK_MIN),
            ("RFLASH_TENANT_BLOCK_MAX", TENANT_BLOCK_MAX),
            ("RFLASH_TENANT_BLOCK_DEFAULT", TENANT_BLOCK_DEFAULT),
            ("RFLASH_TENANT_WEIGHT_MAX", TENANT_WEIGHT_MAX),
            ("RFLASH_TENANT_WEIGHT_DEFAULT", TENANT_WEIGHT_DEFAULT),
            ("RFLASH_HIST_SUB_BITS", HIST_SUB_BITS.into()),
            ("RFLASH_HIST_BUCKETS", HIST_BUCKETS as i64),
        ] {
            assert_eq!(define(&h, name), value.to_string(), "{name}");
        }
        assert_eq!(define(&h, "RFLASH_TMO_MAX"), "7 * 24 * 3600");
        assert_eq!(define(&h, "RFLASH_GENL_NAME"), GENL_NAME);
        assert_eq!(define(&h, "RFLASH_TCP_PORT"), TCP_PORT);
        assert_eq!(define(&h, "RFLASH_TCP_DISC_PORT"), TCP_DISC_PORT);
    }
}
