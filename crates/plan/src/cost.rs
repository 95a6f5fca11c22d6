//! What tiers cost, metadata included (Bhandari 2024, section 3.2.1).

use forebay_block::BlockSize;

use crate::device::Device;

/// A number of allocation units: the granularity in which tiers are bought.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Units(pub u64);

/// How sizes become dollars.
///
/// A tier is bought in units of 1 MiB at its device's price per *decimal* byte. Every block held
/// in any tier also needs metadata, which lives in tier 1 and is paid at tier 1's price. The
/// backing store is there anyway and costs nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CostModel {
    /// Bytes per allocation unit.
    pub unit_bytes: u64,
    /// Bytes of metadata per block.
    pub metadata_bytes_per_block: u64,
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
        Self { unit_bytes: 1 << 20, metadata_bytes_per_block: 31, block_size }
    }

    /// Blocks per allocation unit.
    pub const fn unit_blocks(&self) -> u64 {
        self.unit_bytes / self.block_size.bytes()
    }

    /// The fewest units that hold `blocks` blocks.
    pub const fn units_for(&self, blocks: u64) -> Units {
        Units(blocks.div_ceil(self.unit_blocks()))
    }

    /// Bytes of metadata per allocation unit.
    pub const fn unit_metadata_bytes(&self) -> u64 {
        self.unit_blocks() * self.metadata_bytes_per_block
    }

    /// Price of the metadata of one unit, in US dollars, where tier 1 is made of `tier1`.
    pub fn unit_metadata_usd(&self, tier1: &Device) -> f64 {
        self.unit_metadata_bytes() as f64 * tier1.usd_per_byte()
    }

    /// Price of one unit of `device` with its metadata, in US dollars, where tier 1 is made of
    /// `tier1` (which may be `device` itself).
    ///
    /// ```
    /// use forebay_plan::{Catalogue, CostModel};
    /// let (c, cost) = (Catalogue::default(), CostModel::default());
    /// let usd = cost.unit_usd(c.device("FastSSD").unwrap(), c.device("FastDRAM").unwrap());
    /// assert!((usd - 0.0031913).abs() < 5e-8);
    /// ```
    pub fn unit_usd(&self, device: &Device, tier1: &Device) -> f64 {
        self.unit_bytes as f64 * device.usd_per_byte() + self.unit_metadata_usd(tier1)
    }

    /// Price of tiers of `devices` with `sizes`, in US dollars; 0 where there are none.
    pub fn usd(&self, devices: &[Device], sizes: &[Units]) -> f64 {
        let Some(tier1) = devices.first() else { return 0.0 };
        let price =
            |(device, size): (&Device, &Units)| size.0 as f64 * self.unit_usd(device, tier1);
        devices.iter().zip(sizes).map(price).sum()
    }

    /// The most units at `unit_usd` that `usd` buys.
    pub(crate) fn affordable(usd: f64, unit_usd: f64) -> u64 {
        // An amount that is an exact multiple but for rounding buys the whole multiple.
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
        assert_eq!((cost.unit_blocks(), cost.unit_metadata_bytes()), (256, 7936));
        assert!((cost.unit_metadata_usd(dram) - 0.000_059_52).abs() < 1e-12);
        // The paper prints 0.00235952: it divides 1120 by 375e3 to 0.0023, which is 0.0029867,
        // and takes a MiB for a million bytes.
        assert!((cost.unit_usd(ssd, dram) - 0.003_191_267_6).abs() < 1e-9);
        let tiers = [dram.clone(), ssd.clone()];
        let total = cost.usd(&tiers, &[Units(10), Units(100)]);
        let by_hand = 10.0 * (1_048_576.0 + 7936.0) * 120.0 / 16e9
            + 100.0 * (1_048_576.0 * 1120.0 / 375e9 + 7936.0 * 120.0 / 16e9);
        assert!((total - by_hand).abs() < 1e-12);
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
