//! Generates the requests of one component.

use super::{
    address::{Blocks, Scatter},
    random::{Random, Weighted},
    spec::{Component, Pattern, ZoneShare},
    zipf::Zipf,
};
use crate::{Result, TraceError, formats::text::TRANSFER_BYTES_MAX};
use forebay_block::{Flags, Nanos, Op, Request, SECTOR_BYTES, Volume};

/// Generates the requests of a component.
pub(super) struct Maker {
    random: Random,
    volume: Volume,
    start: u64,
    blocks: u64,
    block: u64,
    addresses: Blocks,
    size_weights: Weighted,
    /// Sizes in bytes, with the number of blocks of each.
    sizes: Vec<(u64, u64)>,
    write: f64,
    trim: f64,
    fua: f64,
    flush_every: Option<u64>,
    writes: u64,
}

impl Maker {
    /// `stream` numbers the component, so that each has random numbers of its own.
    pub(super) fn new(c: &Component, seed: u64, stream: u64, volume: Volume) -> Result<Self> {
        let wrong = |what: &str| TraceError::Options(format!("workload, {:?}: {what}", c.pattern));
        let block = c.block.bytes();
        let blocks = c.blocks.unwrap_or(1 << 20);
        let end = block.checked_mul(blocks).and_then(|n| n.checked_add(c.start.bytes()));
        if block == 0 || blocks == 0 || end.is_none_or(|e| e > i64::MAX as u64) {
            return Err(wrong(
                "blocks and block must be at least 1, and the region must end below 8 EiB",
            ));
        }
        if !(c.write >= 0.0
            && c.trim >= 0.0
            && c.write + c.trim <= 1.0
            && (0.0..=1.0).contains(&c.fua))
        {
            return Err(wrong(
                "write, trim and fua must be shares from 0 to 1, and write + trim at most 1",
            ));
        }
        if c.flush_every == Some(0) || c.run == Some(0) {
            return Err(wrong("flush_every and run must be at least 1"));
        }
        let mut sizes: Vec<(u64, u64)> =
            c.size.iter().map(|s| (s.size.bytes(), s.size.bytes().div_ceil(block))).collect();
        let mut shares: Vec<f64> = c.size.iter().map(|s| s.share).collect();
        if sizes.is_empty() {
            (sizes, shares) = (vec![(block, 1)], vec![1.0]);
        }
        if sizes.iter().any(|(bytes, n)| *bytes == 0 || *n > blocks) {
            return Err(wrong("sizes must be at least 1 byte and at most the whole region"));
        }
        let in_sectors = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
        let places = [block, c.start.bytes()];
        if !sizes.iter().map(|(bytes, _)| *bytes).chain(places).all(in_sectors) {
            return Err(wrong(
                "block, sizes and start must be multiples of 512 B, the sector size of a block device",
            ));
        }
        let only_trims = c.trim == 1.0;
        if !only_trims && sizes.iter().any(|(bytes, _)| *bytes > TRANSFER_BYTES_MAX) {
            return Err(wrong("a read or write must be at most 4 GiB long"));
        }
        let size_weights = Weighted::new(shares.into_iter())
            .ok_or_else(|| wrong("the shares of the sizes add up to 0"))?;
        let addresses = addresses(c, blocks, seed, stream).map_err(wrong)?;
        Ok(Maker {
            random: Random::new(seed, stream),
            volume,
            start: c.start.bytes(),
            blocks,
            block,
            addresses,
            size_weights,
            sizes,
            write: c.write,
            trim: c.trim,
            fua: c.fua,
            flush_every: c.flush_every,
            writes: 0,
        })
    }

    /// Byte offset of the end of the region.
    pub(super) fn end(&self) -> u64 {
        self.start + self.blocks * self.block
    }

    /// The next request, at `time`.
    #[inline]
    pub(super) fn next(&mut self, time: Nanos) -> Request {
        let (volume, none) = (self.volume, Flags::NONE);
        if self.flush_every.is_some_and(|n| self.writes >= n) {
            self.writes = 0;
            return Request { time, volume, op: Op::Flush, flags: none, offset: 0, length: 0 };
        }
        let (length, length_blocks) = self.sizes[self.size_weights.choose(&mut self.random)];
        let at = self.addresses.next(&mut self.random, length_blocks);
        // A request that would extend beyond the region is moved, so that it ends with the region.
        let at = at.min(self.blocks - length_blocks);
        let op = if self.write == 0.0 && self.trim == 0.0 {
            Op::Read
        } else {
            match self.random.unit() {
                u if u < self.write => Op::Write,
                u if u < self.write + self.trim => Op::Trim,
                _ => Op::Read,
            }
        };
        let mut flags = none;
        if op == Op::Write {
            self.writes += 1;
            if self.random.chance(self.fua) {
                flags = Flags::FUA;
            }
        }
        Request { time, volume, op, flags, offset: self.start + at * self.block, length }
    }
}

fn addresses(c: &Component, blocks: u64, seed: u64, stream: u64) -> Result<Blocks, &'static str> {
    let foreign = match c.pattern {
        Pattern::Zipf => c.run.is_some() || !c.zones.is_empty(),
        Pattern::Zoned => c.run.is_some() || c.theta.is_some(),
        Pattern::Uniform => c.run.is_some() || c.theta.is_some() || !c.zones.is_empty(),
        Pattern::Sequential => c.theta.is_some() || !c.zones.is_empty(),
    };
    if foreign {
        return Err("theta applies only to zipf, zones only to zoned, and run only to sequential");
    }
    let scatters = c.scatter && matches!(c.pattern, Pattern::Zipf | Pattern::Zoned);
    match c.extent {
        Some(0) => return Err("extent must be at least 1"),
        Some(_) if !scatters => {
            return Err("extent applies only to zipf and zoned, and only with scatter=yes");
        }
        _ => {}
    }
    let scatter = || {
        if !c.scatter {
            return Scatter::identity();
        }
        // A separate random stream, so that the layout of addresses does not depend on how requests
        // are drawn.
        Scatter::new(blocks, c.extent.unwrap_or(1), &mut Random::new(seed, stream | 1 << 63))
    };
    Ok(match c.pattern {
        Pattern::Zipf => {
            let theta = c.theta.unwrap_or(0.99);
            if !(0.0..=100.0).contains(&theta) {
                return Err("theta must be from 0 to 100");
            }
            Blocks::Zipf(Zipf::new(blocks, theta), scatter())
        }
        Pattern::Zoned => {
            let default =
                [(0.2, 0.8), (0.8, 0.2)].map(|(blocks, access)| ZoneShare { blocks, access });
            let zones = if c.zones.is_empty() { &default[..] } else { &c.zones };
            if !zones_are_whole(zones) {
                return Err(
                    "the zones' shares of the blocks must add up to 1, and so must their shares of \
                     the accesses (for example, 0.2@0.8/0.8@0.2)",
                );
            }
            let (weights, zones) = lay_out(zones, blocks).ok_or(
                "no share of a zone may be negative, and each zone needs at least one block",
            )?;
            Blocks::Zoned(weights, zones, scatter())
        }
        Pattern::Uniform => {
            let weights = Weighted::new([1.0].into_iter()).ok_or("there is no weight")?;
            Blocks::Zoned(weights, vec![(0, blocks)], Scatter::identity())
        }
        Pattern::Sequential => Blocks::Sequential { blocks, run: c.run, next: 0, left: 0 },
    })
}

/// Whether the zones' shares of the blocks, and their shares of the accesses, add up to 1 or are
/// weights.
fn zones_are_whole(zones: &[ZoneShare]) -> bool {
    let adds_up =
        |of: fn(&ZoneShare) -> f64| (zones.iter().map(of).sum::<f64>() - 1.0).abs() < 0.01;
    // Values of 1 or more are weights, not shares, such as 1@3/3@1.
    let are_weights =
        |of: fn(&ZoneShare) -> f64| zones.len() > 1 && zones.iter().any(|z| of(z) >= 1.0);
    let whole = |of| adds_up(of) || are_weights(of);
    whole(|z| z.blocks) && whole(|z| z.access)
}

/// Turns the zones into weights by access and `(first block, blocks)`. Returns `None` if a share is
/// negative or not finite, if they add up to 0, or if a zone would have no block.
fn lay_out(zones: &[ZoneShare], blocks: u64) -> Option<(Weighted, Vec<(u64, u64)>)> {
    // This only checks the shares: the bounds are computed from exact sums below.
    Weighted::new(zones.iter().map(|z| z.blocks))?;
    let sum: f64 = zones.iter().map(|z| z.blocks).sum();
    let (mut first, mut share, mut laid) = (0, 0.0, Vec::new());
    for (n, zone) in zones.iter().enumerate() {
        share += zone.blocks;
        let rest = (zones.len() - 1 - n) as u64;
        let end = ((share / sum * blocks as f64).round() as u64).min(blocks.checked_sub(rest)?);
        let end = if rest == 0 { blocks } else { end };
        if end <= first {
            return None;
        }
        laid.push((first, end - first));
        first = end;
    }
    Some((Weighted::new(zones.iter().map(|z| z.access))?, laid))
}
