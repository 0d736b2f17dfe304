// SPDX-License-Identifier: GPL-2.0-only
//! On files in a temporary directory, and on a loop device where root may have
//! one. Where direct I/O is not possible it says so and uses the page cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::super::Buffer;
use super::*;

const BLOCK: usize = 4096;

/// A directory that goes away. In the build's own directory, since /tmp may be
/// a tmpfs.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let base = std::env::var_os("CARGO_TARGET_DIR").map_or(std::env::temp_dir(), PathBuf::from);
        let path = base.join(format!("rflashd-uring-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn file(&self, bytes: u64) -> PathBuf {
        let path = self.0.join("disk");
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[repr(align(4096))]
#[derive(Clone)]
struct Page(#[allow(dead_code)] [u8; BLOCK]);

fn region(pages: usize) -> &'static mut [u8] {
    let pages = Box::leak(vec![Page([0; BLOCK]); pages].into_boxed_slice());
    let len = pages.len() * BLOCK;
    // SAFETY: pages are plain bytes without gaps.
    unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), len) }
}

/// A ring with two buffers of 64 KiB.
struct Bench {
    ring: Ring,
    base: *mut u8,
}

const HALF: usize = 64 * 1024;

impl Bench {
    /// `None` where the kernel has no io_uring for us.
    fn new() -> Option<Bench> {
        let region = region(2 * HALF / BLOCK);
        let base = region.as_mut_ptr();
        // SAFETY: the tests touch the buffers only while no I/O is in flight.
        let shared = unsafe { std::slice::from_raw_parts(base, 2 * HALF) };
        match Ring::new(8, shared) {
            Ok(ring) => Some(Bench { ring, base }),
            Err(e) => {
                println!("skipped: no io_uring here: {e}");
                None
            }
        }
    }

    fn buffer(&mut self, which: usize) -> &mut [u8] {
        // SAFETY: no I/O is in flight between calls.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(which * HALF), HALF) }
    }

    fn io(&self, op: IoOp, offset: u64, len: u64, which: usize) -> Io {
        Io {
            ticket: Ticket(7),
            op,
            offset,
            len,
            buffer: Buffer {
                ptr: NonNull::new(self.base.wrapping_add(which * HALF)).unwrap(),
                len: HALF as u32,
            },
        }
    }

    /// Run one I/O to its end.
    fn run(
        &mut self,
        disk: &Arc<FileDisk>,
        op: IoOp,
        offset: u64,
        len: u64,
        which: usize,
    ) -> Status {
        let io = self.io(op, offset, len, which);
        // SAFETY: the region lives for ever and nobody touches it meanwhile.
        match unsafe { self.ring.submit(0, disk, io) } {
            Submit::Done(status) => return status,
            Submit::Full => panic!("the ring is empty"),
            Submit::Pending => {}
        }
        let done = self.wait(1);
        assert_eq!(done[0].0, Ticket(7));
        assert!(!self.ring.busy());
        done[0].1
    }

    fn wait(&mut self, want: usize) -> Vec<(Ticket, Status)> {
        let end = Instant::now() + Duration::from_secs(30);
        let mut done = Vec::new();
        while done.len() < want {
            self.ring.kick().unwrap();
            self.ring.poll(0, &mut done);
            assert!(Instant::now() < end, "it ends");
            std::thread::yield_now();
        }
        done
    }
}

const WRITE: IoOp = IoOp::Write { fua: false };

fn pattern(seed: u8, into: &mut [u8]) {
    for (i, b) in into.iter_mut().enumerate() {
        *b = (i as u8).wrapping_mul(7) ^ (i >> 8) as u8 ^ seed;
    }
}

/// Everything a host can ask for.
fn exercise(path: &Path) {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let disk = FileDisk::open(path, false).unwrap();
    if !disk.direct() {
        println!(
            "{}: no direct I/O here, so the page cache is tested",
            path.display()
        );
    }
    let ok = Status::SUCCESS;
    for (fua, offset) in [(false, 0), (true, 128 * 1024)] {
        pattern(fua.into(), bench.buffer(0));
        let op = IoOp::Write { fua };
        assert_eq!(bench.run(&disk, op, offset, HALF as u64, 0), ok);
        assert_eq!(bench.run(&disk, IoOp::Flush, 0, 0, 0), ok);
        bench.buffer(1).fill(0xee);
        assert_eq!(bench.run(&disk, IoOp::Read, offset, HALF as u64, 1), ok);
        let wrote = bench.buffer(0).to_vec();
        assert!(bench.buffer(1) == wrote);
    }
    for (deallocate, fua, block) in [
        (false, false, 1),
        (true, false, 3),
        (false, true, 5),
        (true, true, 7),
    ] {
        let op = IoOp::WriteZeroes { deallocate, fua };
        assert_eq!(bench.run(&disk, op, block * 4096, 4096, 0), ok, "{op:?}");
        assert_eq!(bench.run(&disk, IoOp::Read, 0, HALF as u64, 1), ok);
        let at = block as usize * 4096;
        let read = bench.buffer(1).to_vec();
        assert!(read[at..at + 4096].iter().all(|&b| b == 0), "{op:?}");
        pattern(0, bench.buffer(0));
        assert!(read[at + 4096..at + 8192] == bench.buffer(0)[at + 4096..at + 8192]);
    }
    assert_eq!(bench.run(&disk, IoOp::Discard, 128 * 1024, 65536, 0), ok);
    assert_eq!(bench.run(&disk, IoOp::Read, 128 * 1024, 4096, 1), ok);
    // Not a whole block.
    let wrong = Status::INVALID_FIELD.with_do_not_retry();
    assert_eq!(bench.run(&disk, IoOp::Read, 100, 4096, 1), wrong);
    assert_eq!(bench.run(&disk, WRITE, 0, 100, 1), wrong);
    assert_eq!(bench.run(&disk, IoOp::Read, 0, 0, 1), wrong);
}

#[test]
fn a_file() {
    let place = Place::new("file");
    exercise(&place.file(1 << 20));
}

#[test]
fn a_file_on_tmpfs() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        println!("skipped: there is no /dev/shm");
        return;
    }
    let path = shm.join(format!("rflashd-uring-{}", std::process::id()));
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    exercise(&path);
    fs::remove_file(&path).unwrap();
}

/// A loop device over a file, if we may.
fn with_loop(name: &str, bytes: u64, test: impl FnOnce(&Path)) {
    let place = Place::new(name);
    let file = place.file(bytes);
    let made = Command::new("losetup")
        .args(["--show", "-f"])
        .arg(&file)
        .output();
    let device = match made {
        Ok(out) if out.status.success() => String::from_utf8(out.stdout).unwrap(),
        Ok(out) => {
            println!(
                "skipped: no loop device: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            );
            return;
        }
        Err(e) => {
            println!("skipped: no losetup: {e}");
            return;
        }
    };
    let device = device.trim();
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(Path::new(device))));
    let _ = Command::new("losetup").args(["-d", device]).status();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_block_device() {
    with_loop("loop", 1 << 20, |device| {
        exercise(device);
        let first = FileDisk::open(device, false).unwrap();
        assert_eq!(first.kind(), Kind::BlockDevice);
        let second = FileDisk::open(device, false).unwrap_err().to_string();
        assert!(second.contains("is in use"), "{second}");
    });
}

#[test]
fn what_cannot_be_opened() {
    let place = Place::new("open");
    let error = |path: &Path| FileDisk::open(path, false).unwrap_err().to_string();
    let text = error(&place.file(1000));
    assert!(
        text.contains("has 1000 bytes: its size must be a multiple of"),
        "{text}"
    );
    let text = error(&place.file(0));
    assert!(text.contains("has 0 bytes"), "{text}");
    let text = error(&place.0);
    assert!(
        text.ends_with("is neither a regular file nor a block device"),
        "{text}"
    );
    let text = error(&place.0.join("none"));
    assert!(text.contains("none: cannot be looked at: "), "{text}");
}

#[test]
fn a_file_that_shrinks() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let place = Place::new("shrink");
    let path = place.file(1 << 20);
    let disk = FileDisk::open(&path, false).unwrap();
    for keep in [65536 * 2 + 4096, 65536 * 2 + 1000] {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(keep)
            .unwrap();
        let status = bench.run(&disk, IoOp::Read, 65536 * 2, 65536, 0);
        assert_eq!(status, Status(0x281), "half of it is not there");
        let status = bench.run(&disk, IoOp::Read, 65536 * 4, 65536, 0);
        assert_eq!(status, Status(0x281), "nothing of it is there");
        assert_eq!(bench.run(&disk, IoOp::Read, 0, 65536, 0), Status::SUCCESS);
    }
}

#[test]
fn a_full_file_system() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let place = Place::new("full");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "none"])
        .arg(&place.0)
        .output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        println!("skipped: no small tmpfs can be mounted");
        return;
    }
    let disk = FileDisk::open(&place.file(1 << 20), false).unwrap();
    let mut last = Status::SUCCESS;
    for i in 0..4 {
        last = bench.run(&disk, WRITE, i * 65536, 65536, 0);
    }
    drop((disk, bench));
    let _ = Command::new("umount").arg("-l").arg(&place.0).status();
    assert_eq!(last, Status(0x081).with_do_not_retry());
}

#[test]
fn many_at_once() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let place = Place::new("many");
    let disk = FileDisk::open(&place.file(1 << 20), false).unwrap();
    for round in 0..20_u32 {
        let mut pending = 0;
        for i in 0..9 {
            let mut io = bench.io(IoOp::Read, u64::from(i) * 4096, 4096, 0);
            io.ticket = Ticket(i);
            io.buffer.ptr = NonNull::new(bench.base.wrapping_add(i as usize * 4096)).unwrap();
            // SAFETY: the region lives for ever and nobody touches it meanwhile.
            match unsafe { bench.ring.submit(0, &disk, io) } {
                Submit::Pending => pending += 1,
                other => assert_eq!((i, other), (8, Submit::Full)),
            }
        }
        assert_eq!(pending, 8, "round {round}");
        let mut done = bench.wait(8);
        done.sort_by_key(|(ticket, _)| ticket.0);
        for (i, (ticket, status)) in done.into_iter().enumerate() {
            assert_eq!((ticket, status), (Ticket(i as u32), Status::SUCCESS));
        }
    }
    assert_eq!(bench.ring.next_event(), None);
}

#[test]
fn read_only() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let place = Place::new("ro");
    let disk = FileDisk::open(&place.file(1 << 20), true).unwrap();
    assert_eq!(bench.run(&disk, IoOp::Read, 0, 4096, 0), Status::SUCCESS);
    for op in [WRITE, IoOp::Discard] {
        let status = bench.run(&disk, op, 0, 4096, 0);
        assert_eq!(status, Status(0x020).with_do_not_retry());
    }
}

#[test]
fn errors() {
    assert_eq!(errno::status(libc::EIO, IoOp::Read), Status(0x281));
    assert_eq!(errno::status(libc::EIO, WRITE), Status(0x280));
    assert!(errno::status(libc::ENOSPC, WRITE).do_not_retry());
    assert!(!errno::status(libc::ENOMEM, IoOp::Read).do_not_retry());
    assert_eq!(errno::status(libc::EROFS, IoOp::Flush).code(), 0x020);
    assert_eq!(errno::status(12345, IoOp::Flush), Status::INTERNAL);
}
