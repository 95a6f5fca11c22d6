//! Compares the fast path with a plain array of bytes: no faults, but requests that interact in
//! every way, completions in any order, and occasional clean stops.

use forebay_block::{Flags, Op, Volume};
use forebay_cache::{Open, Order, StopTarget};
use forebay_device::choices::{Choices, Seeded};
use forebay_device::memory::{CutStyle, DeviceOptions};
use forebay_effect::{Device, RequestId};
use forebay_flash::TierId;

use crate::campaign::Tally;
use crate::catch::catch;
use crate::scenario::{Limits, Scenario, draw};
use crate::world::{Started, World};

/// Number of requests in one run.
pub const REQUESTS: u64 = 4_000;
/// The cache stops and starts again once per this number of requests, on average.
const STOP_ONE_IN: u32 = 1_000;

struct Pending {
    id: RequestId,
    volume: usize,
    op: Op,
    first: usize,
    end: usize,
    data: Vec<u8>,
}

struct Check {
    world: World,
    /// The expected contents of the volumes.
    bytes: Vec<Vec<u8>>,
    open: Vec<Pending>,
    choices: Seeded,
    filler: u64,
}

/// Plays one run from a seed, and adds it to a tally.
pub fn tally(seed: u64, tally: &mut Tally) {
    tally.runs += 1;
    let result = catch(|| {
        let mut choices = Seeded::new(seed);
        // If there is flash, its layout alternates from seed to seed.
        let limits = Limits { slots: seed % 2 == 1, ..Limits::default() };
        let scenario = draw(&mut choices, limits);
        let mut check = Check::new(&scenario, choices);
        check.run(scenario.depth)?;
        tally.coverage.add_life(&check.world.cache);
        tally.digest = tally.digest.wrapping_add(check.world.digest.0);
        Ok(())
    });
    match result {
        Ok(()) => tally.replies += REQUESTS,
        Err(how) => tally.failures.push((seed, how)),
    }
}

impl Check {
    fn new(scenario: &Scenario, choices: Seeded) -> Check {
        let world = World::new(
            scenario.config.clone(),
            scenario.volumes.clone(),
            scenario.flash_bytes.map(DeviceOptions::sized),
            DeviceOptions::sized,
            0,
        );
        let bytes = scenario.volumes.iter().map(|v| vec![0; v.size_bytes as usize]).collect();
        Check { world, bytes, open: Vec::new(), choices, filler: 0 }
    }

    fn run(&mut self, depth: usize) -> Result<(), String> {
        let format = Open::Format { uuid: TierId::new([9; 16]), bindings: Vec::new() };
        self.start(format)?;
        for _ in 0..REQUESTS {
            while self.open.len() >= depth || self.choices.choose(3) == 0 {
                if self.open.is_empty() {
                    break;
                }
                self.complete()?;
            }
            while !self.world.cache.has_room() {
                self.complete()?;
            }
            self.request()?;
            if self.choices.one_in(STOP_ONE_IN) {
                self.stop(self.filler.is_multiple_of(2))?;
                if self.choices.choose(2) == 0 {
                    self.world.power_cut(CutStyle::Any, &mut self.choices);
                } else {
                    self.world.reboot(self.world.config.clone());
                }
                self.start(Open::RECOVER)?;
            }
        }
        self.stop(true)
    }

    fn start(&mut self, how: Open) -> Result<(), String> {
        match self.world.start_whole(how, &mut self.choices) {
            Started::Ready => Ok(()),
            other => Err(format!("the start ended with {other:?}")),
        }
    }

    /// Issues a request after the requests in flight that conflict with it have completed. A disk
    /// may order overlapping writes, and reads that overlap a write, in any way; the array has only
    /// one result.
    fn request(&mut self) -> Result<(), String> {
        let c = &mut self.choices;
        let volume = c.choose(self.bytes.len() as u64) as usize;
        let sectors = self.bytes[volume].len() as u64 / 512;
        let block = self.world.config.block_size.bytes() / 512;
        let count = match c.choose(4) {
            0 => block,
            1 => 1 + c.choose(block),
            _ => 1 + c.choose(4 * block),
        };
        let (first, aligned) = (c.choose(sectors), c.choose(2) == 0);
        let first = if aligned { first / block * block } else { first };
        let count = count.min(sectors - first);
        let (op, flags) = match c.choose(16) {
            0..=6 => (Op::Read, Flags::NONE),
            7..=12 => (Op::Write, Flags::NONE),
            13 => (Op::Write, Flags::FUA),
            14 => (Op::Flush, Flags::NONE),
            _ if c.choose(2) == 0 => (Op::Trim, Flags::NONE),
            _ => (Op::WriteZeroes, Flags::NO_HOLE),
        };
        let (first, end) = (first as usize * 512, (first + count) as usize * 512);
        let (first, end) = if op == Op::Flush { (0, 0) } else { (first, end) };
        while self.open.iter().any(|o| o.volume == volume && meets(o, op, first, end)) {
            self.complete()?;
        }
        self.filler += 1;
        let mut data = vec![0; if op == Op::Write { end - first } else { 0 }];
        let mut word = Seeded::new(self.filler);
        for chunk in data.chunks_exact_mut(512) {
            // This is cheap, and every sector of every write differs.
            chunk[..8].copy_from_slice(&word.next_word().to_le_bytes());
            chunk[504..].copy_from_slice(&word.next_word().to_le_bytes());
            chunk[8 + (word.next_word() % 490) as usize] = 1;
        }
        let length = (end - first) as u64;
        let id = self.world.submit(volume as u32, op, flags, first as u64, length, |to| {
            if op == Op::Write {
                to.copy_from_slice(&data);
            } else {
                to.fill(0xEE);
            }
        });
        self.open.push(Pending { id, volume, op, first, end, data });
        self.hear()
    }

    fn complete(&mut self) -> Result<(), String> {
        if !self.world.complete_one(&mut self.choices) {
            return Err(format!("it hangs: {}", self.world.cache.describe()));
        }
        self.hear()
    }

    fn hear(&mut self) -> Result<(), String> {
        for (id, result, data) in self.world.replies() {
            let at = self.open.iter().position(|o| o.id == id).ok_or("a reply to no request")?;
            let o = self.open.swap_remove(at);
            result.map_err(|e| format!("{:?} of {}..{} failed: {e}", o.op, o.first, o.end))?;
            let model = &mut self.bytes[o.volume][o.first..o.end];
            match o.op {
                Op::Read => {
                    if let Some(wrong) = model.iter().zip(&data[..]).position(|(a, b)| a != b) {
                        return Err(format!(
                            "byte {} of volume {} reads {:#x}, not {:#x}",
                            o.first + wrong,
                            o.volume,
                            data[wrong],
                            model[wrong]
                        ));
                    }
                }
                Op::Write => model.copy_from_slice(&o.data),
                Op::Trim | Op::WriteZeroes => model.fill(0),
                Op::Flush => {}
            }
            self.world.requests.put_back(data);
        }
        Ok(())
    }

    fn stop(&mut self, destage: bool) -> Result<(), String> {
        let target = if destage { StopTarget::Stores } else { StopTarget::Flash };
        self.world.order(Order::Stop(target));
        let result = loop {
            self.hear()?;
            if let Some(result) = self.world.stopped() {
                break result;
            }
            self.complete()?;
        };
        result.map_err(|e| format!("the stop failed: {e}"))?;
        if !self.open.is_empty() {
            return Err("requests were never answered".into());
        }
        for (n, bytes) in self.bytes.iter().enumerate().filter(|_| destage) {
            let device = Device::Backing(Volume(n as u32));
            if self.world.executor.devices().contents(device)[..bytes.len()] != bytes[..] {
                return Err(format!("the backing store of volume {n} differs after a destage"));
            }
        }
        Ok(())
    }
}

fn meets(open: &Pending, op: Op, first: usize, end: usize) -> bool {
    let both_read = open.op == Op::Read && op == Op::Read;
    !both_read && open.first < end && first < open.end
}
