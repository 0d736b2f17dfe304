// SPDX-License-Identifier: GPL-2.0-only
//! Models that come with the crate.

use super::{DeviceModel, Point, RATE_MAX};

/// p95 in µs, tokens a second mixed, tokens a second read-only.
type Row = (u32, u64, u64);

/// The curve of ReFlex's sample device, about 1M read IOPS (its repository's
/// `sample.devmodel`): published measurements.
const MILLION: &[Row] = &[
    (500, 36_000_000, 85_000_000),
    (1000, 50_000_000, 95_000_000),
    (1500, 52_000_000, 98_000_000),
    (2000, 57_000_000, 100_000_000),
    (2500, 75_000_000, 100_000_000),
    (3000, 80_000_000, 100_000_000),
];

/// The NVMe device of AWS i3 instances (ReFlex's `sample-aws-ec2.devmodel`):
/// published measurements.
const AWS_I3: &[Row] = &[
    (500, 24_000_000, 38_000_000),
    (1000, 33_000_000, 39_000_000),
    (1500, 35_000_000, 40_000_000),
    (2000, 37_000_000, 41_000_000),
    (2500, 39_000_000, 41_000_000),
    (3000, 41_000_000, 41_500_000),
];

/// Intel DC P3600, 400 GB. Its limits are published: 250,000 reads of 4 KiB a
/// second (EuroSys 2016, section 4), 30,000 sustained random writes (data
/// sheet), hence 25 M tokens a second and about 8.3 reads for a write. The
/// curve's shape is not: it is AWS_I3's, by share of the greatest rate. Calibrate.
const P3600: &[Row] = &[
    (500, 14_500_000, 22_900_000),
    (1000, 19_900_000, 23_500_000),
    (1500, 21_100_000, 24_100_000),
    (2000, 22_300_000, 24_700_000),
    (2500, 23_500_000, 24_700_000),
    (3000, 24_700_000, 25_000_000),
];

impl DeviceModel {
    /// Names that [`DeviceModel::preset`] knows.
    pub const PRESETS: [&'static str; 4] = ["p3600", "million", "aws-i3", "unlimited"];

    /// A model that comes with the crate. `unlimited` is for RAM and null
    /// devices: no load of one machine reaches its limits.
    #[must_use]
    pub fn preset(name: &str) -> Option<DeviceModel> {
        let model = match name {
            "p3600" => model(name, 830, 25_000_000, P3600),
            "million" => model(name, 1000, 100_000_000, MILLION),
            "aws-i3" => model(name, 700, 41_500_000, AWS_I3),
            "unlimited" => model(name, 100, RATE_MAX, &[(1, RATE_MAX, RATE_MAX)]),
            _ => return None,
        };
        Some(model)
    }
}

fn model(name: &str, write: i64, max: u64, rows: &[Row]) -> DeviceModel {
    let point = |&(p95_us, mixed, read_only): &Row| Point {
        p95_us,
        mixed,
        read_only,
    };
    DeviceModel {
        name: name.to_owned(),
        page: 4096,
        read: 100,
        write,
        read_only_read: 100,
        flush: write,
        discard: write,
        max,
        curve: rows.iter().map(point).collect(),
    }
}
