// SPDX-License-Identifier: GPL-2.0-only
//! An open file or block device.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, StatxFlags, ioctl_blksszget, statx};

/// Sizes and offsets are multiples of this at least: the smallest block of NVMe.
const SECTOR: u64 = 512;
/// Alignment for direct I/O where the kernel does not say (before 6.1).
const ALIGN_UNKNOWN: u32 = 4096;

/// The kernel takes a ring apart some time after its process has ended, and
/// until then its devices are in use: a server that is started again waits.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Why a file cannot be served; its text names the file and what is wrong.
#[derive(Debug)]
pub struct OpenError(String);

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    BlockDevice,
}

/// An open file or block device, shared by all cores.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    path: PathBuf,
    /// Unique in this process: rings know disks by it.
    id: u64,
    bytes: u64,
    kind: Kind,
    /// Bytes that offsets and lengths are multiples of.
    align: u32,
    /// Bytes that addresses of buffers are multiples of.
    memory_align: u32,
    /// The page cache is not used.
    direct: bool,
    /// The device has queues that are polled for completions.
    polled: bool,
    read_only: bool,
}

impl FileDisk {
    /// Open a regular file or a block device. A block device that is mounted or
    /// otherwise in use is refused, since two writers destroy what is on it.
    ///
    /// Where direct I/O is not possible (some file systems) the page cache is
    /// used, which is logged; FLUSH and FUA reach the disk either way.
    pub fn open(path: &Path, read_only: bool) -> Result<Arc<FileDisk>, OpenError> {
        let name = path.display();
        let failed = |what: &str, e: std::io::Error| OpenError(format!("{name}: {what}: {e}"));
        let about = fs::metadata(path).map_err(|e| failed("cannot be looked at", e))?;
        let kind = match about.file_type() {
            t if t.is_file() => Kind::File,
            t if t.is_block_device() => Kind::BlockDevice,
            _ => {
                let text = format!("{name} is neither a regular file nor a block device");
                return Err(OpenError(text));
            }
        };
        let (file, direct) = open(path, kind, read_only).map_err(|e| {
            let what = match e.raw_os_error() {
                Some(libc::EBUSY) => "is in use (mounted, swap or part of another device)",
                _ => "cannot be opened",
            };
            failed(what, e)
        })?;
        if !direct {
            log::warn!(
                "{name}: no direct I/O here, so the page cache is used; FLUSH and FUA reach the disk all the same"
            );
        }
        let mut end = &file;
        let bytes = end
            .seek(SeekFrom::End(0))
            .map_err(|e| failed("its size cannot be read", e))?;
        let (align, memory_align) = alignment(&file, kind, direct);
        if bytes == 0 || bytes % u64::from(align).max(SECTOR) != 0 {
            return Err(OpenError(format!(
                "{name} has {bytes} bytes: its size must be a multiple of {align} and not 0"
            )));
        }
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Arc::new(FileDisk {
            polled: direct && kind == Kind::BlockDevice && polls(about.rdev()),
            file,
            path: path.to_owned(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            bytes,
            kind,
            align,
            memory_align,
            direct,
            read_only,
        }))
    }

    /// Size when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes that offsets and lengths are multiples of: the least block size a
    /// namespace on it can have.
    pub fn align(&self) -> u32 {
        self.align
    }

    /// The page cache is not used.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// Completions are polled for.
    pub fn polled(&self) -> bool {
        self.polled
    }

    pub fn read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether a range can be read and written.
    pub(super) fn aligned(&self, offset: u64, len: u64) -> bool {
        (offset | len) % u64::from(self.align) == 0
    }

    /// Whether a buffer can be read to and written from.
    pub(super) fn takes(&self, address: usize) -> bool {
        address % self.memory_align as usize == 0
    }
}

fn open(path: &Path, kind: Kind, read_only: bool) -> std::io::Result<(File, bool)> {
    // O_EXCL without O_CREAT: a block device that somebody else has claimed is
    // refused. For files it means nothing.
    let exclusive = match kind {
        Kind::BlockDevice => libc::O_EXCL,
        Kind::File => 0,
    };
    let with = |flags| {
        OpenOptions::new()
            .read(true)
            .write(!read_only)
            .custom_flags(flags | exclusive | libc::O_CLOEXEC)
            .open(path)
    };
    let mut tries = BUSY_TRIES;
    loop {
        match with(libc::O_DIRECT) {
            Ok(file) => return Ok((file, true)),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok((with(0)?, false)),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && tries > 0 => {
                tries -= 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(e) => return Err(e),
        }
    }
}

/// Alignment of ranges and of memory.
fn alignment(file: &File, kind: Kind, direct: bool) -> (u32, u32) {
    if !direct {
        return (SECTOR as u32, 1);
    }
    if kind == Kind::BlockDevice {
        let block = ioctl_blksszget(file).unwrap_or(ALIGN_UNKNOWN);
        return (block, block);
    }
    let known = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    match known.filter(|s| s.stx_mask & StatxFlags::DIOALIGN.bits() != 0) {
        Some(s) if s.stx_dio_offset_align > 0 => (
            s.stx_dio_offset_align.max(SECTOR as u32),
            s.stx_dio_mem_align.max(1),
        ),
        _ => (ALIGN_UNKNOWN, ALIGN_UNKNOWN),
    }
}

/// Whether a block device, or the disk a partition is on, has poll queues.
fn polls(device: u64) -> bool {
    let (major, minor) = (libc::major(device), libc::minor(device));
    ["queue/io_poll", "../queue/io_poll"].iter().any(|file| {
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{file}"))
            .is_ok_and(|text| text.trim() == "1")
    })
}
