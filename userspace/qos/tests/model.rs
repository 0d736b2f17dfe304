// SPDX-License-Identifier: GPL-2.0-only
//! Device models: presets, interpolation, text form, what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use proptest::prelude::*;
use qos::{DeviceModel, Op, Point};

#[test]
fn presets_are_models() {
    for name in DeviceModel::PRESETS {
        let model = DeviceModel::preset(name).unwrap();
        model.check().unwrap();
        assert_eq!(model.name, name);
        assert_eq!(DeviceModel::from_toml(&model.to_toml()), Ok(model));
    }
    assert_eq!(DeviceModel::preset("p4800"), None);
}

#[test]
fn requests_cost_by_started_pages() {
    let model = DeviceModel::preset("million").unwrap();
    for (bytes, pages) in [
        (0, 1),
        (1, 1),
        (512, 1),
        (4096, 1),
        (4097, 2),
        (131_072, 32),
    ] {
        assert_eq!(model.cost(Op::Read, bytes), 100 * pages);
        assert_eq!(model.cost(Op::Write, bytes), 1000 * pages);
    }
    assert_eq!(model.discard(1 << 30), 1024 * 1000);
    assert_eq!(model.flush(), 1000);
    // No size overflows.
    assert!(model.cost(Op::Write, u64::MAX) > 0);
}

#[test]
fn the_curve_is_followed() {
    let model = DeviceModel::preset("million").unwrap();
    for (p95, read_only, rate) in [
        (499, false, None),
        (500, false, Some(36_000_000)),
        (750, false, Some(43_000_000)),
        (1000, false, Some(50_000_000)),
        (1000, true, Some(95_000_000)),
        (3000, false, Some(80_000_000)),
        (u32::MAX, false, Some(80_000_000)),
    ] {
        assert_eq!(model.rate(p95, read_only), rate, "{p95} {read_only}");
    }
    for (rate, p95) in [
        (1, Some(500)),
        (36_000_000, Some(500)),
        (43_000_000, Some(750)),
        (80_000_001, None),
    ] {
        assert_eq!(model.latency(rate, false), p95, "{rate}");
    }
}

#[test]
fn faults_name_line_and_key() {
    let good = DeviceModel::preset("p3600").unwrap().to_toml();
    let line = |needle: &str| {
        good.lines()
            .position(|line| line.starts_with(needle))
            .unwrap()
            + 1
    };
    for (from, to, at, key, what) in [
        (
            "read = 100",
            "read = 0",
            line("read ="),
            "read",
            "between 1 and",
        ),
        (
            "read = 100",
            "read = \"x\"",
            line("read ="),
            "read",
            "whole number",
        ),
        (
            "page = 4096",
            "page = 4095",
            line("page"),
            "page",
            "power of two",
        ),
        (
            "page = 4096",
            "page = -1",
            line("page"),
            "page",
            "between 0 and",
        ),
        (
            "page = 4096",
            "pages = 4096",
            line("page"),
            "pages",
            "the keys are name, page",
        ),
        ("max = 25000000", "max = 1", line("max"), "max", "between"),
        ("max = 25000000", "", 1, "max", "missing"),
        (
            "p95-us = 1000",
            "p95-us = 400",
            line("p95-us = 1000"),
            "p95-us",
            "501 or more",
        ),
        (
            "mixed = 19900000",
            "mixed = 100",
            line("mixed = 19900000"),
            "mixed",
            "14500000 or more",
        ),
        (
            "read-only = 22900000",
            "read-only = 1",
            line("read-only = 22900000"),
            "read-only",
            "between mixed",
        ),
        (
            "read-only = 22900000",
            "readonly = 1",
            line("read-only = 22900000"),
            "readonly",
            "the keys are p95-us",
        ),
        ("name = \"p3600\"", "name = p3600", line("name"), "", ""),
    ] {
        assert!(good.contains(from), "{from}");
        let error = DeviceModel::from_toml(&good.replacen(from, to, 1)).unwrap_err();
        // What is missing is told where the table begins.
        if !to.is_empty() {
            assert_eq!(error.line, at, "{to}: {error}");
        }
        assert_eq!(error.key, key, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let empty = DeviceModel::from_toml("").unwrap_err();
    assert!(empty.to_string().contains("missing"), "{empty}");
    let bare = DeviceModel::from_toml("name = \"x\"\nwrite = 1\nmax = 1\npoint = 3\n").unwrap_err();
    assert_eq!(
        bare.to_string(),
        "line 4: point: is not a list of tables; write [[point]]"
    );
}

#[test]
fn defaults_are_filled_in() {
    let text = "name = \"x\"\nwrite = 700\nmax = 2_000\n[[point]]\np95-us = 1\nmixed = 0x10\nread-only = 16\n";
    let model = DeviceModel::from_toml(text).unwrap();
    assert_eq!(
        (model.page, model.read, model.read_only_read),
        (4096, 100, 100)
    );
    assert_eq!((model.flush, model.discard, model.max), (700, 700, 2000));
    assert_eq!(
        model.curve,
        [Point {
            p95_us: 1,
            mixed: 16,
            read_only: 16
        }]
    );
}

#[test]
fn the_kernel_gets_its_form() {
    let model = DeviceModel::preset("million").unwrap();
    assert_eq!(
        model.to_io_cost(),
        "ctrl=user model=linear rbps=4096000000 rseqiops=1000000 rrandiops=1000000 \
         wbps=409600000 wseqiops=100000 wrandiops=100000"
    );
    let small = DeviceModel { page: 512, ..model };
    assert!(
        small
            .to_io_cost()
            .starts_with("ctrl=user model=linear rbps=512000000 rseqiops=125000 ")
    );
}

proptest! {
    #[test]
    fn text_says_all(
        name in "[ -~é\n\t]{1,20}",
        costs in (1_i64..1000, 1_i64..10_000, 1_i64..10_000),
        steps in prop::collection::vec((1_u32..1000, 0_u64..1_000_000, 0_u64..1_000_000), 1..20),
    ) {
        let mut curve = Vec::new();
        let mut point = Point { p95_us: 0, mixed: 1, read_only: 1 };
        for (p95, mixed, read_only) in steps {
            let mixed = point.mixed + mixed;
            point = Point {
                p95_us: point.p95_us + p95,
                mixed,
                read_only: point.read_only.max(mixed) + read_only,
            };
            curve.push(point);
        }
        let model = DeviceModel {
            name,
            page: 4096,
            read: costs.0,
            write: costs.1,
            read_only_read: 1,
            flush: costs.2,
            discard: 7,
            max: curve.last().unwrap().mixed,
            curve,
        };
        prop_assert_eq!(model.check(), Ok(()));
        let text = model.to_toml();
        prop_assert_eq!(DeviceModel::from_toml(&text).unwrap(), model.clone());
        // A longer time never bears less.
        let rates: Vec<u64> = (model.curve[0].p95_us..).take(3000).map_while(|p95| model.rate(p95, false)).collect();
        prop_assert!(rates.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    /// Text of any kind is refused, not fallen over.
    #[test]
    fn any_text_is_read(text in "(name|page|read|max|point|p95-us|\\[\\[point\\]\\]| = |[0-9\"x.\\n-]){0,30}") {
        let _ = DeviceModel::from_toml(&text);
    }
}
