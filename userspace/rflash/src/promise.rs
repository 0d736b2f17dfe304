// SPDX-License-Identifier: GPL-2.0-only
//! What a server that knows tenants promises this host: as options, as
//! attributes of the driver, and in words.

use nvme_wire::tenant::Class;
use serde_json::{Value, json};

use crate::netlink::{Attr, Builder, NetlinkError};
use crate::options::{Problem, problem, range};
use crate::uapi::{self, TenantState, attr};

#[derive(Clone, Debug, Default, clap::Args)]
pub struct TenantOptions {
    /// Promise to ask the server for: lc, latency-critical, or be, best-effort
    ///
    /// lc needs --slo-p95, --slo-iops and --slo-read-pct: reads within that
    /// latency as long as no more than so many requests come. be takes, by
    /// weight, what is left. A server that can't keep the promise refuses the
    /// connection, and its log says what would fit; one that does not know
    /// tenants is used without, and that is said. Asked again after a reconnect.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,

    /// lc: 95 % of reads are to take at most so many microseconds, 1 to 1000000
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    pub slo_p95: Option<i64>,

    /// lc: reads and writes per second, 1 to 100000000
    #[arg(long, value_name = "IOPS", allow_negative_numbers = true)]
    pub slo_iops: Option<i64>,

    /// lc: percentage of reads among them, 0 to 100
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    pub slo_read_pct: Option<i64>,

    /// lc: size of a read or write, 512 to 1m, a multiple of 512 [default: 4k]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub slo_bs: Option<String>,

    /// be: share among best-effort hosts, 1 to 10000 [default: 100]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub weight: Option<i64>,
}

impl TenantOptions {
    /// The promise to ask for, if any.
    pub fn check(&self) -> Result<Option<Class>, Problem> {
        match self.class.as_deref() {
            None => self.unwanted("give --class, too", &self.critical(), &self.best()),
            Some("lc" | "latency-critical") => {
                self.unwanted("this is for --class be", &[], &self.best())?;
                self.latency_critical().map(Some)
            }
            Some("be" | "best-effort") => {
                self.unwanted("this is for --class lc", &self.critical(), &[])?;
                let most = uapi::TENANT_WEIGHT_MAX;
                let weight = range("weight", self.weight, 1, most, "as a share")?;
                Ok(Some(Class::BestEffort {
                    weight: weight.unwrap_or(uapi::TENANT_WEIGHT_DEFAULT as u32),
                }))
            }
            Some(other) => Err(problem(
                "class",
                format!(
                    "{other:?} is not a class of tenants: give lc (latency-critical) or be (best-effort)"
                ),
            )),
        }
    }

    fn critical(&self) -> [(&'static str, bool); 4] {
        [
            ("slo-p95", self.slo_p95.is_some()),
            ("slo-iops", self.slo_iops.is_some()),
            ("slo-read-pct", self.slo_read_pct.is_some()),
            ("slo-bs", self.slo_bs.is_some()),
        ]
    }

    fn best(&self) -> [(&'static str, bool); 1] {
        [("weight", self.weight.is_some())]
    }

    /// None of these options may be given.
    fn unwanted(
        &self,
        why: &str,
        some: &[(&'static str, bool)],
        more: &[(&'static str, bool)],
    ) -> Result<Option<Class>, Problem> {
        match some.iter().chain(more).find(|(_, given)| *given) {
            Some((key, _)) => Err(problem(key, why)),
            None => Ok(None),
        }
    }

    fn latency_critical(&self) -> Result<Class, Problem> {
        let p95 = range(
            "slo-p95",
            self.slo_p95,
            1,
            uapi::TENANT_P95_MAX,
            "microseconds",
        )?;
        let iops = range(
            "slo-iops",
            self.slo_iops,
            1,
            uapi::TENANT_IOPS_MAX,
            "a second",
        )?;
        let reads = range("slo-read-pct", self.slo_read_pct, 0, 100, "percent")?;
        let missing = |key| problem(key, "missing, --class lc needs it");
        let reads = reads.ok_or_else(|| missing("slo-read-pct"));
        Ok(Class::LatencyCritical {
            p95_us: p95.ok_or_else(|| missing("slo-p95"))?,
            iops: iops.ok_or_else(|| missing("slo-iops"))?,
            read_pct: u8::try_from(reads?).unwrap_or(100),
            block: self
                .slo_bs
                .as_deref()
                .map_or(Ok(uapi::TENANT_BLOCK_DEFAULT as u32), block)?,
        })
    }
}

/// Bytes, alone or with a unit of 1024 or 1024².
fn block(text: &str) -> Result<u32, Problem> {
    let wrong = || {
        let text = format!("{text:?} is not a block size: give 512 to 1m, a multiple of 512");
        problem("slo-bs", text)
    };
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").unwrap_or(&lower);
    let (digits, unit) = match (lower.strip_suffix('k'), lower.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1 << 10),
        (_, Some(digits)) => (digits, 1 << 20),
        _ => (lower, 1),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit));
    let bytes = bytes.ok_or_else(wrong)?;
    let allowed = uapi::TENANT_BLOCK_MIN..=uapi::TENANT_BLOCK_MAX;
    match allowed.contains(&i64::from(bytes)) && i64::from(bytes) % uapi::TENANT_BLOCK_MIN == 0 {
        true => Ok(bytes),
        false => Err(wrong()),
    }
}

/// What was asked for, what came of it, and what is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    pub asked: Option<Class>,
    pub state: TenantState,
    /// Also what the server's own configuration says, unasked; as of the last
    /// connect.
    pub granted: Option<Class>,
}

/// A class as the driver has it: one attribute each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    class: u32,
    p95_us: u32,
    iops: u32,
    read_pct: u32,
    block: u32,
    weight: u32,
}

impl Numbers {
    /// Take what an attribute says, if it is one of these.
    pub fn take(&mut self, a: &Attr<'_>) -> Result<(), NetlinkError> {
        let to = match a.kind {
            attr::TENANT_CLASS => &mut self.class,
            attr::TENANT_P95_US => &mut self.p95_us,
            attr::TENANT_IOPS => &mut self.iops,
            attr::TENANT_READ_PCT => &mut self.read_pct,
            attr::TENANT_BLOCK => &mut self.block,
            attr::TENANT_WEIGHT => &mut self.weight,
            _ => return Ok(()),
        };
        *to = a.u32()?;
        Ok(())
    }

    /// `None` if there is no class, or one that only a newer driver has.
    pub fn class(&self) -> Result<Option<Class>, NetlinkError> {
        let bad = NetlinkError::Malformed("a tenant's share of reads is above 100 %");
        Ok(match self.class {
            uapi::TENANT_LATENCY_CRITICAL => Some(Class::LatencyCritical {
                p95_us: self.p95_us,
                iops: self.iops,
                read_pct: u8::try_from(self.read_pct)
                    .ok()
                    .filter(|p| *p <= 100)
                    .ok_or(bad)?,
                block: self.block,
            }),
            uapi::TENANT_BEST_EFFORT => Some(Class::BestEffort {
                weight: self.weight,
            }),
            _ => None,
        })
    }
}

/// A class in a nest of its own.
pub fn decode(nest: &Attr<'_>) -> Result<Option<Class>, NetlinkError> {
    let mut numbers = Numbers::default();
    for attr in nest.nested() {
        numbers.take(&attr?)?;
    }
    numbers.class()
}

pub fn encode(b: Builder, class: &Class) -> Builder {
    match *class {
        Class::LatencyCritical {
            p95_us,
            iops,
            read_pct,
            block,
        } => b
            .u32(attr::TENANT_CLASS, uapi::TENANT_LATENCY_CRITICAL)
            .u32(attr::TENANT_P95_US, p95_us)
            .u32(attr::TENANT_IOPS, iops)
            .u32(attr::TENANT_READ_PCT, read_pct.into())
            .u32(attr::TENANT_BLOCK, block),
        Class::BestEffort { weight } => b
            .u32(attr::TENANT_CLASS, uapi::TENANT_BEST_EFFORT)
            .u32(attr::TENANT_WEIGHT, weight),
    }
}

/// The class alone.
pub fn name(class: &Class) -> &'static str {
    match class {
        Class::LatencyCritical { .. } => "latency-critical",
        Class::BestEffort { .. } => "best-effort",
    }
}

/// What it promises, short.
pub fn terms(class: &Class) -> String {
    match class {
        Class::LatencyCritical {
            p95_us,
            iops,
            read_pct,
            block,
        } => format!("p95 {p95_us} us, {iops} IOPS of {block} bytes, {read_pct} % reads"),
        Class::BestEffort { weight } => format!("weight {weight}"),
    }
}

/// Both, within a sentence.
pub fn sentence(class: &Class) -> String {
    format!("{} ({})", name(class), terms(class))
}

/// For programs.
pub fn to_json(class: &Class) -> Value {
    match class {
        Class::LatencyCritical {
            p95_us,
            iops,
            read_pct,
            block,
        } => json!({
            "class": name(class), "p95_us": p95_us, "iops": iops,
            "read_pct": read_pct, "block": block,
        }),
        Class::BestEffort { weight } => json!({ "class": name(class), "weight": weight }),
    }
}

impl Promise {
    /// The class in force.
    pub fn class(&self) -> Value {
        self.granted
            .as_ref()
            .map_or(Value::Null, |c| name(c).into())
    }

    /// What is in force, for people, and what is not though it was asked for.
    pub fn text(&self) -> Value {
        let terms = self.granted.as_ref().map(terms);
        let not = matches!(self.state, TenantState::Refused | TenantState::Unsupported);
        let parts = [terms, not.then(|| format!("({})", self.state.name()))];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => Value::Null,
            false => parts.join(" ").into(),
        }
    }

    /// All of it, for programs. No key is one that a device has itself and that
    /// scripts without a parser look for, such as `state`.
    pub fn json(&self) -> Value {
        let of = |class: &Option<Class>| class.as_ref().map_or(Value::Null, to_json);
        json!({
            "outcome": self.state.name(),
            "asked": of(&self.asked),
            "granted": of(&self.granted),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Attrs;
    use proptest::prelude::*;

    fn lc() -> TenantOptions {
        TenantOptions {
            class: Some("lc".into()),
            slo_p95: Some(500),
            slo_iops: Some(20000),
            slo_read_pct: Some(90),
            ..TenantOptions::default()
        }
    }

    fn be() -> TenantOptions {
        TenantOptions {
            class: Some("be".into()),
            ..TenantOptions::default()
        }
    }

    const CRITICAL: Class = Class::LatencyCritical {
        p95_us: 500,
        iops: 20000,
        read_pct: 90,
        block: 4096,
    };

    #[test]
    fn options_make_a_class() {
        assert_eq!(TenantOptions::default().check(), Ok(None));
        assert_eq!(lc().check(), Ok(Some(CRITICAL)));
        assert_eq!(be().check(), Ok(Some(Class::BestEffort { weight: 100 })));
        let long = TenantOptions {
            class: Some("best-effort".into()),
            weight: Some(2),
            ..TenantOptions::default()
        };
        assert_eq!(long.check(), Ok(Some(Class::BestEffort { weight: 2 })));
    }

    #[test]
    fn sentences() {
        type Change = fn(&mut TenantOptions);
        let cases: &[(TenantOptions, Change, &str)] = &[
            (lc(), |o| o.class = None, "--slo-p95: give --class, too"),
            (
                be(),
                |o| (o.class, o.weight) = (None, Some(1)),
                "--weight: give --class, too",
            ),
            (
                be(),
                |o| o.class = Some("gold".into()),
                "--class: \"gold\" is not a class of tenants: give lc (latency-critical) or be \
                 (best-effort)",
            ),
            (
                lc(),
                |o| o.weight = Some(1),
                "--weight: this is for --class be",
            ),
            (
                be(),
                |o| o.slo_bs = Some("4k".into()),
                "--slo-bs: this is for --class lc",
            ),
            (
                lc(),
                |o| o.slo_p95 = None,
                "--slo-p95: missing, --class lc needs it",
            ),
            (
                lc(),
                |o| o.slo_iops = None,
                "--slo-iops: missing, --class lc needs it",
            ),
            (
                lc(),
                |o| o.slo_read_pct = None,
                "--slo-read-pct: missing, --class lc needs it",
            ),
            (
                lc(),
                |o| o.slo_p95 = Some(0),
                "--slo-p95: 0 is out of range: give 1 to 1000000 microseconds",
            ),
            (
                lc(),
                |o| o.slo_iops = Some(-1),
                "--slo-iops: -1 is out of range: give 1 to 100000000 a second",
            ),
            (
                lc(),
                |o| o.slo_read_pct = Some(101),
                "--slo-read-pct: 101 is out of range: give 0 to 100 percent",
            ),
            (
                lc(),
                |o| o.slo_bs = Some("1000".into()),
                "--slo-bs: \"1000\" is not a block size: give 512 to 1m, a multiple of 512",
            ),
            (
                be(),
                |o| o.weight = Some(10001),
                "--weight: 10001 is out of range: give 1 to 10000 as a share",
            ),
        ];
        for (base, change, want) in cases {
            let mut options = base.clone();
            change(&mut options);
            let got = options.check().map_err(|p| p.into_error().to_string());
            assert_eq!(got.unwrap_err(), *want);
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("128KiB", 131_072),
            ("1m", 1 << 20),
        ] {
            assert_eq!(block(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "0",
            "513",
            "2m",
            "4g",
            "-4k",
            "4.5k",
            "9999999999",
            "4294967295m",
        ] {
            assert!(block(text).is_err(), "{text}");
        }
    }

    #[test]
    fn attributes_there_and_back() {
        for class in [CRITICAL, Class::BestEffort { weight: 3 }] {
            let bytes = encode(Builder::new(), &class).into_bytes();
            let mut numbers = Numbers::default();
            for a in Attrs::new(&bytes) {
                numbers.take(&a.unwrap()).unwrap();
            }
            assert_eq!(numbers.class().unwrap(), Some(class));
        }
        let odd = Numbers {
            class: 1,
            read_pct: 101,
            ..Numbers::default()
        };
        assert!(odd.class().is_err());
        assert_eq!(Numbers { class: 9, ..odd }.class().unwrap(), None);
    }

    #[test]
    fn for_people_and_programs() {
        let none = Promise::default();
        assert_eq!((none.class(), none.text()), (Value::Null, Value::Null));
        let made = Promise {
            asked: Some(CRITICAL),
            state: TenantState::Granted,
            granted: Some(CRITICAL),
        };
        assert_eq!(made.class(), "latency-critical");
        assert_eq!(
            made.text(),
            "p95 500 us, 20000 IOPS of 4096 bytes, 90 % reads"
        );
        let lost = Promise {
            state: TenantState::Refused,
            granted: Some(Class::BestEffort { weight: 100 }),
            ..made
        };
        assert_eq!(lost.text(), "weight 100 (refused)");
        assert_eq!(lost.json()["asked"]["p95_us"], 500);
        assert_eq!(lost.json()["granted"]["weight"], 100);
        assert_eq!(lost.json()["outcome"], "refused");
        let unknown = Promise {
            state: TenantState::Unsupported,
            granted: None,
            ..made
        };
        assert_eq!(unknown.text(), "(unsupported)");
    }

    proptest! {
        #[test]
        fn no_option_panics(class in "(lc|be|x)?", p95: i64, iops: i64, reads: i64, bs in ".{0,6}", weight: i64) {
            let options = TenantOptions {
                class: Some(class).filter(|c| !c.is_empty()),
                slo_p95: Some(p95),
                slo_iops: Some(iops),
                slo_read_pct: Some(reads),
                slo_bs: Some(bs),
                weight: Some(weight),
            };
            let _ = options.check();
        }
    }
}
