// SPDX-License-Identifier: GPL-2.0-only
//! Mistakes, one by one, and what is right.

use std::path::Path;

use nvme_wire::tenant::Class;
use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Plan, Vec<String>> {
    let mut config = Config::default();
    let mut problems = Problems::default();
    document::parse(Path::new("a.toml"), text, true, &mut config, &mut problems);
    let checked = problems.or(()).and_then(|()| Plan::of(&config));
    checked.map_err(|p| p.0.iter().map(Problem::to_string).collect())
}

const RAM: &str = "[[device]]\nname = \"r\"\nram = \"64 MiB\"\n";

#[test]
fn a_tenant_with_a_device() {
    let plan = read(&format!(
        "{RAM}[[tenant]]\nname = \"t1\"\nnqn = \"nqn.2024-01.io.example:t1\"\ndevice = \"r\"\n\
         size = \"16 MiB\"\nport = 4421\nclass = \"lc\"\nslo_p95 = 500\nslo-iops = 1000\n\
         uuid = \"01234567-89ab-cdef-0123-456789abcdef\"\ncpus = \"0-1\"\n"
    ))
    .unwrap();
    assert_eq!(plan.devices.len(), 1);
    let export = &plan.exports[0];
    assert_eq!(export.serial, "0123456789abcdef0123");
    assert_eq!(export.listen, ["0.0.0.0:4421".parse().unwrap()]);
    assert_eq!(export.parts[0].size, Some(16 << 20));
    let promise = &plan.promises[0];
    assert_eq!(promise.cpus, Some(vec![0, 1]));
    let want = Class::LatencyCritical {
        p95_us: 500,
        iops: 1000,
        read_pct: 100,
        block: 4096,
    };
    assert_eq!(promise.class, want);
    assert!(!promise.open);
}

/// What rflash-target writes.
#[test]
fn files_of_rflash_target() {
    let plan = read(
        "# Made by rflash-target, which removes it on `rflash-target delete`.\n\n[[tenant]]\n\
         name = \"t1\"\nnqn = \"nqn.2026-11.org.rflash:rflashd-flash:t1\"\n\
         device = \"/dev/disk/by-partuuid/0a0b0c0d-01\"\nuuid = \"01234567-89ab-cdef-0123-456789abcdef\"\n\
         address = \"10.0.0.1\"\nport = 4420\nallowed-hosts = []\ncpus = \"\"\n",
    )
    .unwrap();
    assert_eq!(plan.exports[0].listen, ["10.0.0.1:4420".parse().unwrap()]);
    assert_eq!(plan.devices[0].name, "/dev/disk/by-partuuid/0a0b0c0d-01");
    assert_eq!(plan.promises[0].class, Class::BestEffort { weight: 100 });
    assert_eq!(plan.promises[0].cpus, None);
    assert!(plan.promises[0].open);
}

#[test]
fn subsystems_with_namespaces_and_hosts() {
    let plan = read(&format!(
        "{RAM}[[subsystem]]\nnqn = \"nqn.2024-01.io.example:s\"\nlisten = [\"[::1]:4420\"]\n\
         [[subsystem.namespace]]\ndevice = \"r\"\nsize = \"32 MiB\"\n\
         [[subsystem.namespace]]\ndevice = \"r\"\noffset = \"32 MiB\"\nread-only = true\n\
         [[tenant]]\nname = \"a\"\nnqn = \"nqn.2024-01.io.example:s\"\nhost = \"nqn.2024-01.io.example:h\"\n\
         [[tenant]]\nname = \"b\"\nnqn = \"nqn.2024-01.io.example:s\"\nweight = 7\n"
    ))
    .unwrap();
    let parts = &plan.exports[0].parts;
    assert_eq!((parts[0].nsid, parts[1].nsid), (1, 2));
    assert_ne!(parts[0].uuid, parts[1].uuid);
    assert_eq!(parts[0].uuid[6] >> 4, 8);
    assert_eq!(parts[0].uuid[8] >> 6, 2);
    assert_eq!(plan.exports[0].serial.len(), 20);
    assert_eq!(plan.promises.len(), 2);
}

#[test]
fn mistakes_name_file_line_and_key() {
    let tenant = "[[tenant]]\nname = \"t\"\nnqn = \"nqn.2024-01.io.example:t\"\n";
    for (text, want) in [
        (
            "x = 1\n".to_string(),
            "a.toml:1: x: no such table; allowed are [server], [limits],",
        ),
        (
            "[sever]\n".to_string(),
            "a.toml:1: sever: no such table, did you mean server? allowed are",
        ),
        (
            "[[tenants]]\n".to_string(),
            "a.toml:1: tenants: no such table, did you mean tenant?",
        ),
        ("[server\n".to_string(), "a.toml:1:"),
        (
            "[tenant]\nname = \"t\"\n".to_string(),
            "a.toml:1: tenant: write it as [[tenant]], with two brackets",
        ),
        (
            "[[server]]\n".to_string(),
            "a.toml:1: server: write it as [server]",
        ),
        (
            "[server]\nspin-us = \"a\"\n".to_string(),
            "a.toml:2: spin-us: this is of type string, give a whole number from 0 to 1000000",
        ),
        (
            "[server]\nspin-us = -1\n".to_string(),
            "a.toml:2: spin-us: -1 is out of range, give a whole number from 0 to 1000000",
        ),
        (
            "[server]\nlog-level = \"warning\"\n".to_string(),
            "a.toml:2: log-level: \"warning\" is unknown, did you mean \"warn\"? Give \"error\", \"warn\",",
        ),
        (
            "[server]\nmetrics = \"localhost\"\n".to_string(),
            "a.toml:2: metrics: \"localhost\" is no address with a port, give an address and a port such as",
        ),
        (
            "[server]\nlog_levle = \"info\"\n".to_string(),
            "a.toml:2: log_levle: no such key in [server], did you mean log-level? allowed are cpus, threads,",
        ),
        (
            "[discovery]\nlisten = [1]\n".to_string(),
            "a.toml:2: listen: integer in the list, give a list in brackets of: an address",
        ),
        (
            "[[device]]\nram = \"1 GiB\"\n".to_string(),
            "a.toml:1: name: missing, every [[device]] needs it",
        ),
        (
            "[[device]]\nname = \"d\"\n".to_string(),
            "a.toml:1: d is nothing: give path, ram, null or model",
        ),
        (
            "[[device]]\nname = \"d\"\nram = 8192\nnull = 8192\n".to_string(),
            "a.toml:4: null: a device is one thing: give one of ram, null",
        ),
        (
            "[[device]]\nname = \"d\"\npath = \"x\"\n".to_string(),
            "a.toml:3: path: give a path that begins with /",
        ),
        (
            "[[device]]\nname = \"d\"\nmodel = \"p3700\"\n".to_string(),
            "a.toml:3: model: \"p3700\" is unknown, did you mean \"p3600\"?",
        ),
        (
            "[[device]]\nname = \"d\"\nram = 8192\ncost-model = \"mine\"\n".to_string(),
            "a.toml:4: cost-model: \"mine\" is unknown, give \"p3600\", \"million\", \"aws-i3\", or the path",
        ),
        (
            format!("{RAM}{RAM}"),
            "a.toml:5: name: r is there already, at a.toml:1",
        ),
        (
            format!("{RAM}{tenant}"),
            "a.toml:6: nqn: there is no [[subsystem]] nqn.2024-01.io.example:t: add one, or give the tenant a device",
        ),
        (
            format!("{RAM}{tenant}device = \"q\"\n"),
            "a.toml:7: device: there is no [[device]] named q, but there is r",
        ),
        (
            format!("{RAM}{tenant}device = \"r\"\nclass = \"lc\"\n"),
            "a.toml:4: slo-iops: missing, a latency-critical tenant needs it",
        ),
        (
            format!("{RAM}{tenant}device = \"r\"\nslo-p95 = 3\n"),
            "a.toml:8: slo-p95: only a latency-critical tenant has it",
        ),
        (
            format!("{RAM}{tenant}device = \"r\"\nwieght = 3\n"),
            "a.toml:8: wieght: no such key in [[tenant]], did you mean weight?",
        ),
        (
            format!("{RAM}{tenant}device = \"r\"\nsize = \"65 MiB\"\n"),
            "a.toml:8: size: ends beyond the device, which has 64 MiB",
        ),
        (
            format!("{RAM}{tenant}device = \"r\"\noffset = 100\n"),
            "a.toml:8: offset: give a multiple of 4 KiB",
        ),
        (
            format!("{RAM}{tenant}device = \"r\"\nblock-size = 1000\n"),
            "a.toml:8: block-size: 1000 is no size of a block",
        ),
        (
            format!("[server]\ncpus = \"0-1\"\n{RAM}{tenant}device = \"r\"\ncpus = \"1-2\"\n"),
            "a.toml:10: cpus: CPU 2 is not one of the server's, which are 0-1",
        ),
        (
            format!(
                "{RAM}[[subsystem]]\nnqn = \"nqn.2014-08.org.nvmexpress.discovery\"\n[[subsystem.namespace]]\ndevice = \"r\"\n"
            ),
            "a.toml:5: nqn: that is every discovery controller's name",
        ),
        (
            format!("{RAM}[[subsystem]]\nnqn = \"nqn.2024-01.io.example:t\"\n"),
            "a.toml:4: nqn.2024-01.io.example:t has no namespace",
        ),
        (
            format!("{RAM}[[subsystem]]\nnqn = \"bad\"\n"),
            "a.toml:5: nqn: \"bad\": ",
        ),
        (
            RAM.to_string(),
            ": there is nothing to serve: give a [[tenant]] with a device",
        ),
    ] {
        let errors = read(&text).unwrap_err();
        assert!(
            errors.iter().any(|e| e.starts_with(want)),
            "{text}\nwant {want}\ngot {errors:#?}"
        );
        assert!(errors.iter().all(|e| e.lines().count() == 1));
    }
}

#[test]
fn what_can_not_be_together() {
    let tenant = |name: &str, more: &str| {
        format!(
            "[[tenant]]\nname = \"{name}\"\nnqn = \"nqn.2024-01.io.example:{name}\"\ndevice = \"r\"\n{more}"
        )
    };
    let overlap = format!(
        "{RAM}{}{}",
        tenant("a", "size = \"32 MiB\"\n"),
        tenant("b", "offset = \"16 MiB\"\n")
    );
    let errors = read(&overlap).unwrap_err();
    assert_eq!(
        errors,
        [
            "a.toml:13: offset: these blocks are those of the namespace at a.toml:4, too: give other offsets and sizes"
        ]
    );
    let twice = format!(
        "{RAM}{}{}",
        tenant("a", "size = 4096\n"),
        tenant("a", "offset = 4096\n")
    );
    let errors = read(&twice).unwrap_err();
    assert!(
        errors
            .iter()
            .any(|e| e.contains("name: a is there already, at a.toml:4")),
        "{errors:#?}"
    );
    assert!(
        errors
            .iter()
            .any(|e| e.contains("has a tenant for the same hosts already")),
        "{errors:#?}"
    );
    let ports = format!(
        "{RAM}{}{}",
        tenant("a", "size = 4096\n"),
        tenant("b", "offset = 4096\naddress = \"10.0.0.1\"\nport = 4420\n")
    );
    let errors = read(&ports).unwrap_err();
    assert!(
        errors[0].contains("port: 10.0.0.1:4420 and 0.0.0.0:4420 can't be listened at together"),
        "{errors:#?}"
    );
}

#[test]
fn all_mistakes_at_once_in_their_order() {
    let errors =
        read("[server]\nspin-us = -1\nlog-level = 3\n[[device]]\nnam = \"d\"\n").unwrap_err();
    let lines: Vec<_> = errors
        .iter()
        .map(|e| e.split(':').nth(1).unwrap())
        .collect();
    assert_eq!(lines, ["2", "3", "4", "5"]);
}

#[test]
fn what_is_printed_is_read_again() {
    let text = format!(
        "{RAM}[[subsystem]]\nnqn = \"nqn.2024-01.io.example:s\"\n[[subsystem.namespace]]\ndevice = \"r\"\n\
         [[tenant]]\nname = \"b\"\nnqn = \"nqn.2024-01.io.example:s\"\n"
    );
    let parse = |text: &str| {
        let (mut config, mut problems) = (Config::default(), Problems::default());
        document::parse(Path::new("a.toml"), text, true, &mut config, &mut problems);
        assert_eq!(problems.0, []);
        config
    };
    let config = parse(&text);
    assert_eq!(parse(&config.to_toml()), config);
}

#[test]
fn files_beside_it() {
    let directory = std::env::temp_dir().join(format!("rflashd-config-{}", std::process::id()));
    let more = directory.join("rflashd.d");
    std::fs::create_dir_all(&more).unwrap();
    let file = directory.join("rflashd.toml");
    std::fs::write(&file, RAM).unwrap();
    let tenant = |n: u32| {
        format!(
            "[[tenant]]\nname = \"t{n}\"\nnqn = \"nqn.2024-01.io.example:t{n}\"\ndevice = \"r\"\noffset = \"{n} MiB\"\nsize = \"1 MiB\"\n"
        )
    };
    std::fs::write(more.join("b.toml"), tenant(2)).unwrap();
    std::fs::write(more.join("a.toml"), tenant(1)).unwrap();
    std::fs::write(more.join("a.toml.old"), "nonsense").unwrap();
    let config = load(&file).unwrap();
    let names: Vec<_> = config.tenants.iter().map(|t| t.name.0.as_str()).collect();
    assert_eq!(names, ["t1", "t2"]);
    std::fs::write(more.join("c.toml"), "[server]\n").unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(
        error.ends_with("c.toml:1: server: [server] stands in the main file only"),
        "{error}"
    );
    let error = load(&directory.join("none.toml")).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "{}: no such file or directory",
            directory.join("none.toml").display()
        )),
        "{error}"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_example_is_right() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/config/rflashd.toml"
    );
    let config = load(Path::new(path)).unwrap();
    Plan::of(&config).unwrap();
}

proptest! {
    #[test]
    fn never_panics(text in "[\\[\\]a-z\"=0-9.\n-]{0,80}") {
        let _ = read(&text);
        for table in ["server", "limits", "discovery"] {
            let _ = read(&format!("[{table}]\n{text}"));
        }
        for table in ["device", "subsystem", "tenant"] {
            let _ = read(&format!("[[{table}]]\n{text}"));
        }
    }
}
