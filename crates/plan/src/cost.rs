//! The cost of tiers, metadata included (Bhandari 2024, section 3.2.1).

use std::str::FromStr;

use forebay_block::BlockSize;

use crate::device::Device;

/// A number of allocation units: the granularity in which tiers are bought.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Units(pub u64);

/// Bytes of metadata that a block needs, depending on its tier.
///
/// ```
/// use forebay_plan::Metadata;
/// let log: Metadata = "76,48".parse().unwrap();
/// assert_eq!([log.bytes_per_block(0), log.bytes_per_block(1), log.bytes_per_block(2)], [76, 48, 48]);
/// assert_eq!(Metadata::default().bytes_per_block(1), 31);
/// assert!("76,-1".parse::<Metadata>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata([u32; METADATA_TIERS]);

/// The number of tiers that can differ; further tiers are like the last.
const METADATA_TIERS: usize = 4;

impl Metadata {
    /// An equal number of bytes in every tier.
    pub const fn everywhere(bytes: u32) -> Self {
        Self([bytes; METADATA_TIERS])
    }

    /// Bytes for a block in tier `tier`, counted from 0.
    pub const fn bytes_per_block(&self, tier: usize) -> u64 {
        let last = METADATA_TIERS - 1;
        self.0[if tier < last { tier } else { last }] as u64
    }
}

impl Default for Metadata {
    /// The paper's 31 bytes.
    fn default() -> Self {
        Self::everywhere(31)
    }
}

/// A text that is not a list of metadata sizes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` does not give the bytes of metadata for each block: write one number, or one for each \
     tier, such as 76,48 (at most {METADATA_TIERS}; any tiers below use the last number)"
)]
pub struct MetadataError(String);

impl FromStr for Metadata {
    type Err = MetadataError;
    fn from_str(text: &str) -> Result<Self, MetadataError> {
        let error = || MetadataError(text.to_owned());
        let numbers: Vec<u32> = text
            .split(',')
            .map(|number| number.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| error())?;
        let last = *numbers.last().ok_or_else(error)?;
        if numbers.len() > METADATA_TIERS {
            return Err(error());
        }
        let mut bytes = [last; METADATA_TIERS];
        bytes[..numbers.len()].copy_from_slice(&numbers);
        Ok(Self(bytes))
    }
}

/// How sizes translate to dollars.
///
/// A tier is bought in units of 1 MiB at its device's price per *decimal* byte. Every block held
/// in any tier also needs metadata, which lives in tier 1 and is paid at tier 1's price. The
/// backing store exists anyway and costs nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostModel {
    /// Bytes per allocation unit.
    pub unit_bytes: u64,
    /// Bytes of metadata per block.
    pub metadata: Metadata,
    /// The size of a block.
    pub block_size: BlockSize,
}

impl Default for CostModel {
    /// The paper's: 1 MiB units of 4 KiB blocks with 31 B of metadata each.
    fn default() -> Self {
        Self::with_block_size(BlockSize::KIB_4)
    }
}

impl CostModel {
    /// The paper's model for blocks of another size.
    pub const fn with_block_size(block_size: BlockSize) -> Self {
        Self { unit_bytes: 1 << 20, metadata: Metadata::everywhere(31), block_size }
    }

    /// Blocks per allocation unit.
    pub const fn unit_blocks(&self) -> u64 {
        self.unit_bytes / self.block_size.bytes()
    }

    /// The fewest units that hold `blocks` blocks.
    pub const fn units_for(&self, blocks: u64) -> Units {
        Units(blocks.div_ceil(self.unit_blocks()))
    }

    /// Bytes of metadata per allocation unit in tier `tier`, counted from 0.
    pub const fn unit_metadata_bytes(&self, tier: usize) -> u64 {
        self.unit_blocks() * self.metadata.bytes_per_block(tier)
    }

    /// Price of the metadata of one unit in tier `tier`, in US dollars, where tier 1 is made of
    /// `tier1`.
    pub fn unit_metadata_usd(&self, tier: usize, tier1: &Device) -> f64 {
        self.unit_metadata_bytes(tier) as f64 * tier1.usd_per_byte()
    }

    /// Price of one unit of `device` with its metadata, in US dollars, as tier `tier` (counted
    /// from 0) where tier 1 is made of `tier1` (which may be `device` itself).
    ///
    /// ```
    /// use forebay_plan::{Catalogue, CostModel};
    /// let (c, cost) = (Catalogue::default(), CostModel::default());
    /// let usd = cost.unit_usd(1, c.device("FastSSD").unwrap(), c.device("FastDRAM").unwrap());
    /// assert!((usd - 0.0031913).abs() < 5e-8);
    /// ```
    pub fn unit_usd(&self, tier: usize, device: &Device, tier1: &Device) -> f64 {
        self.unit_bytes as f64 * device.usd_per_byte() + self.unit_metadata_usd(tier, tier1)
    }

    /// Price of tiers of `devices` with `sizes`, in US dollars; 0 where there are none.
    pub fn usd(&self, devices: &[Device], sizes: &[Units]) -> f64 {
        let Some(tier1) = devices.first() else { return 0.0 };
        let price = |(tier, (device, size)): (usize, (&Device, &Units))| {
            size.0 as f64 * self.unit_usd(tier, device, tier1)
        };
        devices.iter().zip(sizes).enumerate().map(price).sum()
    }

    /// The part of `usd` that is left after spending `spent`.
    pub(crate) fn left(usd: f64, spent: f64) -> f64 {
        // The difference inherits the rounding of the sum: what is left of a price that was added
        // up must still buy the part that was left out.
        (usd * (1.0 + 1e-14) - spent).max(0.0)
    }

    /// The largest number of units at `unit_usd` that `usd` buys.
    pub(crate) fn affordable(usd: f64, unit_usd: f64) -> u64 {
        // If the amount is an exact multiple except for rounding, the whole multiple is bought.
        if unit_usd <= 0.0 { u64::MAX } else { (usd / unit_usd * (1.0 + 1e-12)).floor() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;

    #[test]
    fn the_papers_worked_example_with_its_division_corrected() {
        let c = Catalogue::default();
        let (ssd, dram) = (c.device("FastSSD").unwrap(), c.device("FastDRAM").unwrap());
        let cost = CostModel::default();
        assert_eq!((cost.unit_blocks(), cost.unit_metadata_bytes(1)), (256, 7936));
        assert!((cost.unit_metadata_usd(1, dram) - 0.000_059_52).abs() < 1e-12);
        // The paper prints 0.00235952: it computes 1120 / 375e3 as 0.0023 instead of 0.0029867, and
        // takes a MiB as a million bytes.
        assert!((cost.unit_usd(1, ssd, dram) - 0.003_191_267_6).abs() < 1e-9);
        let tiers = [dram.clone(), ssd.clone()];
        let total = cost.usd(&tiers, &[Units(10), Units(100)]);
        let by_hand = 10.0 * (1_048_576.0 + 7936.0) * 120.0 / 16e9
            + 100.0 * (1_048_576.0 * 1120.0 / 375e9 + 7936.0 * 120.0 / 16e9);
        assert!((total - by_hand).abs() < 1e-12);
    }

    #[test]
    fn metadata_of_each_tier_is_paid_at_the_price_of_tier_1() {
        let c = Catalogue::default();
        let tiers = ["FastDRAM", "SlowDRAM", "SlowSSD"].map(|name| c.device(name).unwrap().clone());
        let metadata = "76,48".parse().unwrap();
        let cost = CostModel { metadata, ..CostModel::default() };
        let byte = 120.0 / 16e9;
        let data = [120.0 / 16e9, 68.0 / 16e9, 132.0 / 480e9];
        let usd = |units: f64, tier: usize, bytes: f64| {
            units * (1_048_576.0 * data[tier] + 256.0 * bytes * byte)
        };
        let by_hand = usd(10.0, 0, 76.0) + usd(20.0, 1, 48.0) + usd(300.0, 2, 48.0);
        let total = cost.usd(&tiers, &[Units(10), Units(20), Units(300)]);
        assert!((total - by_hand).abs() < 1e-12, "{total} against {by_hand}");
    }

    #[test]
    fn what_is_no_number_of_bytes_is_refused() {
        for text in ["", "x", "76,", "-1", "1.5", "1,2,3,4,5", "99999999999"] {
            let error = text.parse::<Metadata>().unwrap_err().to_string();
            assert!(error.contains("76,48"), "{error}");
        }
    }

    #[test]
    fn an_exact_multiple_buys_the_whole_multiple() {
        for units in [1_u64, 3, 7, 1052, 999_999] {
            for price in [0.1, 0.007_923_84, 0.003_191_3] {
                assert_eq!(CostModel::affordable(units as f64 * price, price), units);
                assert_eq!(
                    CostModel::affordable(units as f64 * price * 0.999_999, price),
                    units - 1
                );
            }
        }
    }
}
