// SPDX-License-Identifier: GPL-2.0-only
//! What a device is made of, and the presets.

use std::fmt;

use crate::{Nanos, PAGE};

/// A device's parameters. Only sums can be observed from outside; what a preset
/// says about the inside is chosen so that the published figures come out.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    pub name: String,
    /// Bytes the host can address; a multiple of 4 KiB.
    pub capacity: u64,
    pub channels: u32,
    pub dies_per_channel: u32,
    /// Planes that are programmed together.
    pub planes: u32,
    /// Bytes of a page of one plane; a multiple of 4 KiB.
    pub page: u32,
    /// Pages in an erase block of one plane.
    pub block_pages: u32,
    /// From a die's array to its register.
    pub t_read: Nanos,
    /// One page in each plane. Reads can come in between after each 4 KiB's share
    /// of it.
    pub t_program: Nanos,
    /// One block in each plane.
    pub t_erase: Nanos,
    /// 4 KiB over a channel's bus.
    pub t_transfer: Nanos,
    /// A read that finds a program or an erase on its die waits so long for its
    /// suspension; `None`: until it ends.
    pub t_suspend: Option<Nanos>,
    /// 4 KiB parts of programs that a die is given at a time: a read waits for
    /// all of them, and goes before those that come after.
    pub committed: u32,
    /// Bytes of acknowledged writes that are not yet programmed.
    pub write_buffer: u64,
    /// Whether the buffer survives a power cut: then a flush is free.
    pub power_loss_protection: bool,
    /// Flash beyond the capacity that garbage collection can use, as a fraction
    /// of the capacity. Effective: what parity, metadata and bad blocks take is
    /// not in it.
    pub over_provisioning: f64,
    /// The controller's time for a command, of which it serves one at a time:
    /// its highest rate is the inverse.
    pub t_command: Nanos,
    /// What a command takes in addition, without holding up others: submission,
    /// DMA, completion.
    pub t_fixed: Nanos,
    /// Bytes per second of the host link, reads.
    pub read_bandwidth: u64,
    /// Bytes per second of the host link, writes.
    pub write_bandwidth: u64,
    /// 4 KiB pages of the scaled-down translation layer: the model keeps so many
    /// instead of `capacity / 4096`. A multiple of 64.
    pub model_pages: u32,
}

/// Parameters that make no sense: which and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamsError {
    pub key: &'static str,
    pub text: String,
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Intel SSD DC P3600, 400 GB. Published: 550 MB/s sequential write,
    /// 2,100 MB/s sequential read, 30,000 random 4 KiB writes per second (Intel,
    /// product specification 330569, 400 GB); 250,000 random 4 KiB reads per
    /// second (Klimovic et al., "Flash storage disaggregation", EuroSys 2016,
    /// section 4: their device's limit, which we follow; Intel says 320,000).
    pub fn p3600() -> Params {
        Params {
            name: "p3600".to_string(),
            capacity: 400_088_457_216,
            channels: 10,
            dies_per_channel: 2,
            planes: 2,
            page: 8192,
            block_pages: 256,
            t_read: 74_000,
            t_program: 580_000,
            t_erase: 3_500_000,
            t_transfer: 12_000,
            t_suspend: None,
            committed: 8,
            write_buffer: 32 << 20,
            power_loss_protection: true,
            over_provisioning: 0.185,
            t_command: 4_000,
            t_fixed: 6_000,
            read_bandwidth: 2_100_000_000,
            write_bandwidth: 2_100_000_000,
            model_pages: 1 << 17,
        }
    }

    /// A device of a million 4 KiB reads per second, for ReFlex's figure. ReFlex
    /// was tested with Samsung's PM1725 (its README), whose data sheet says
    /// 1,000,000 random reads, 120,000 random writes, 6,000 MB/s sequential
    /// read, 2,000 MB/s sequential write.
    pub fn million() -> Params {
        Params {
            name: "million".to_string(),
            capacity: 1_600_321_314_816,
            channels: 16,
            dies_per_channel: 5,
            planes: 2,
            page: 8192,
            block_pages: 256,
            t_read: 70_000,
            t_program: 640_000,
            t_erase: 3_500_000,
            t_transfer: 5_000,
            t_suspend: None,
            committed: 8,
            write_buffer: 64 << 20,
            power_loss_protection: true,
            over_provisioning: 0.19,
            t_command: 1_000,
            t_fixed: 4_000,
            read_bandwidth: 6_000_000_000,
            write_bandwidth: 6_000_000_000,
            model_pages: 1 << 17,
        }
    }

    /// A preset by its name.
    pub fn preset(name: &str) -> Option<Params> {
        match name {
            "p3600" => Some(Params::p3600()),
            "million" => Some(Params::million()),
            _ => None,
        }
    }

    /// Names of all presets.
    pub const PRESETS: [&str; 2] = ["p3600", "million"];

    /// Dies of the device.
    pub fn dies(&self) -> u32 {
        self.channels.saturating_mul(self.dies_per_channel)
    }

    /// Time to program 4 KiB: what a read waits for at most if `committed` is 1.
    pub fn t_granule(&self) -> Nanos {
        (self.t_program / u64::from(self.unit_pages().max(1))).max(1)
    }

    /// 4 KiB pages that one program writes, and that one read reads when they
    /// are asked for together.
    pub fn unit_pages(&self) -> u32 {
        self.planes.saturating_mul(self.page / PAGE)
    }

    /// Whether a device can be made of this.
    ///
    /// # Errors
    /// The first parameter that makes no sense, with what would.
    pub fn check(&self) -> Result<(), ParamsError> {
        let bad = |key, text: String| Err(ParamsError { key, text });
        let range = |key, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let text = format!("{value} is out of range: give {low} to {high}");
            Err(ParamsError { key, text })
        };
        const SECOND: Nanos = 1_000_000_000;
        if self.capacity == 0 || self.capacity % u64::from(PAGE) != 0 {
            let text = format!("{} is no multiple of 4096 bytes", self.capacity);
            return bad("capacity", text);
        }
        range("channels", self.channels.into(), 1, 256)?;
        range("dies_per_channel", self.dies_per_channel.into(), 1, 64)?;
        range("planes", self.planes.into(), 1, 16)?;
        range("page", self.page.into(), 4096, 65536)?;
        if self.page % PAGE != 0 {
            return bad("page", format!("{} is no multiple of 4096", self.page));
        }
        range("block_pages", self.block_pages.into(), 1, 1 << 16)?;
        range("t_read", self.t_read, 1, SECOND)?;
        range("t_program", self.t_program, 1, SECOND)?;
        range("t_erase", self.t_erase, 0, SECOND)?;
        range("t_transfer", self.t_transfer, 0, SECOND)?;
        range("t_suspend", self.t_suspend.unwrap_or(0), 0, SECOND)?;
        range("committed", self.committed.into(), 1, 1024)?;
        range("t_command", self.t_command, 1, SECOND)?;
        range("t_fixed", self.t_fixed, 0, SECOND)?;
        range("read_bandwidth", self.read_bandwidth, 1 << 20, 1 << 40)?;
        range("write_bandwidth", self.write_bandwidth, 1 << 20, 1 << 40)?;
        let least = u64::from(PAGE) * u64::from(self.dies());
        range("write_buffer", self.write_buffer, least, 1 << 36)?;
        // Below, garbage collection moves more than 25 pages for each one.
        if !(0.02..=10.0).contains(&self.over_provisioning) {
            let text = format!(
                "{} is out of range: give 0.02 to 10",
                self.over_provisioning
            );
            return bad("over_provisioning", text);
        }
        let least = (u64::from(self.dies()) * 16).next_multiple_of(1024);
        range("model_pages", self.model_pages.into(), least, 1 << 28)?;
        if self.model_pages % 64 != 0 {
            let text = format!("{} is no multiple of 64", self.model_pages);
            return bad("model_pages", text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound() {
        for name in Params::PRESETS {
            let params = Params::preset(name).unwrap();
            assert_eq!(params.name, name);
            params.check().unwrap();
        }
        assert_eq!(Params::preset("p9999"), None);
    }

    #[test]
    fn nonsense_is_named() {
        let with = |change: fn(&mut Params)| {
            let mut params = Params::p3600();
            change(&mut params);
            params.check().unwrap_err()
        };
        assert_eq!(
            with(|p| p.capacity = 4095).to_string(),
            "capacity: 4095 is no multiple of 4096 bytes"
        );
        assert_eq!(with(|p| p.channels = 0).key, "channels");
        assert_eq!(with(|p| p.page = 6000).key, "page");
        assert_eq!(with(|p| p.t_read = 0).key, "t_read");
        assert_eq!(with(|p| p.write_buffer = 0).key, "write_buffer");
        assert_eq!(
            with(|p| p.over_provisioning = f64::NAN).key,
            "over_provisioning"
        );
        assert_eq!(with(|p| p.model_pages = 512).key, "model_pages");
    }
}
