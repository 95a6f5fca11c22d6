//! Plans a device effect as a sequence of device operations.
//!
//! Most effects are a single step. A write whose edges lie inside logical blocks first reads those
//! blocks. A zeroing does the same for its two edge blocks, and zeroes the whole blocks between
//! them with one operation.

use crate::devices::Verb;

use super::transfer::Order;

/// Maximum length in bytes of one write of zeroes, for devices that cannot zero.
pub(super) const ZERO_CHUNK_BYTES: u64 = 1 << 20;

/// The operation of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Read,
    Write,
    Zero,
    Sync,
}

/// The memory of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    None,
    /// The effect's own operands.
    Memory,
    /// The staging buffer, from this byte on.
    Staging(usize),
    /// The shared zeroes.
    Zeroes,
}

/// A change in the staging buffer after a step.
#[derive(Clone, Copy, Debug)]
enum Patch {
    Copy { from: usize, to: usize, length: usize },
    Zero { at: usize, length: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub action: Action,
    pub target: Target,
    pub offset: u64,
    pub length: u64,
    patches: [Option<Patch>; 2],
}

/// The steps of one effect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    list: [Option<Step>; 5],
    count: usize,
    at: usize,
    staging: usize,
    exclusive: bool,
    bounce: Option<usize>,
}

impl Steps {
    /// Plans `order` for logical blocks of `block` bytes. `direct` says that the device can use the
    /// order's memory and range as they are, `can_zero` that the device zeroes ranges itself.
    pub fn plan(order: &Order, block: u32, direct: bool, can_zero: bool) -> Steps {
        let mut steps = Steps::default();
        match order.verb {
            Verb::Sync => steps.push(Action::Sync, Target::None, 0, 0),
            Verb::Read if direct => {
                steps.push(Action::Read, Target::Memory, order.offset, order.length);
            }
            Verb::Write if direct => {
                steps.push(Action::Write, Target::Memory, order.offset, order.length);
            }
            Verb::Read => steps.plan_bounced(order, block, Action::Read),
            Verb::Write => steps.plan_bounced(order, block, Action::Write),
            Verb::WriteZeroes { .. } => steps.plan_zeroes(order, block, can_zero),
        }
        steps
    }

    /// The current step.
    pub fn current(&self) -> Option<&Step> {
        self.list.get(self.at)?.as_ref()
    }

    /// Advances to the next step, after changing the staging buffer as planned.
    pub fn step_done(&mut self, staging: Option<&mut [u8]>) {
        if let (Some(step), Some(staging)) = (self.current(), staging) {
            for patch in step.patches.iter().flatten() {
                match *patch {
                    Patch::Copy { from, to, length } => {
                        staging.copy_within(from..from + length, to);
                    }
                    Patch::Zero { at, length } => staging[at..at + length].fill(0),
                }
            }
        }
        self.at += 1;
    }

    /// Makes the current step write zeroes, because the device cannot zero.
    pub fn write_zeroes_instead(&mut self) {
        if let Some(step) = self.list.get_mut(self.at).and_then(Option::as_mut) {
            step.action = Action::Write;
            step.target = Target::Zeroes;
        }
    }

    /// Whether a step writes zeroes because the device cannot zero.
    pub fn writes_zeroes(&self) -> bool {
        self.list.iter().flatten().any(|step| step.target == Target::Zeroes)
    }

    /// Bytes of staging buffer that the plan needs; `None` for none.
    pub fn staging_bytes(&self) -> Option<usize> {
        (self.staging > 0).then_some(self.staging)
    }

    /// Whether other writers of the same blocks have to wait.
    pub fn exclusive(&self) -> bool {
        self.exclusive
    }

    /// The offset of the effect's bytes in the staging buffer, if it is bounced as a whole.
    pub fn bounce(&self) -> Option<usize> {
        self.bounce
    }

    fn plan_bounced(&mut self, order: &Order, block: u32, action: Action) {
        let block = u64::from(block);
        let start = order.offset - order.offset % block;
        let data_end = order.offset + order.length;
        let end = data_end.next_multiple_of(block);
        let span = (end - start) as usize;
        let lead = (order.offset - start) as usize;
        let (edge, tail) = (block as usize, (end - data_end) as usize);
        self.bounce = Some(lead);
        self.staging = span;
        if action == Action::Write && lead + tail > 0 {
            self.exclusive = true;
            self.staging = span + 2 * edge;
            // Edge blocks are read into the buffer after the span, so that they do not overwrite
            // the data in it.
            let head_at = span;
            let tail_at = if span == edge { span } else { span + edge };
            let keep_head = Patch::Copy { from: head_at, to: 0, length: lead };
            let keep_tail =
                Patch::Copy { from: tail_at + edge - tail, to: span - tail, length: tail };
            if span == edge {
                self.push_edge(start, block, head_at, [Some(keep_head), Some(keep_tail)]);
            } else {
                if lead > 0 {
                    self.push_edge(start, block, head_at, [Some(keep_head), None]);
                }
                if tail > 0 {
                    self.push_edge(end - block, block, tail_at, [Some(keep_tail), None]);
                }
            }
        }
        self.push(action, Target::Staging(0), start, span as u64);
    }

    fn plan_zeroes(&mut self, order: &Order, block: u32, can_zero: bool) {
        let block = u64::from(block);
        let (offset, end) = (order.offset, order.offset + order.length);
        let (inner, inner_end) = (offset.next_multiple_of(block), end - end % block);
        if inner > inner_end {
            // The range lies inside one block.
            let start = offset - offset % block;
            self.push_zeroed_edge(start, block, 0, (offset - start) as usize, order.length);
            return;
        }
        if inner > offset {
            let lead = block - (inner - offset);
            self.push_zeroed_edge(inner - block, block, 0, lead as usize, inner - offset);
        }
        if inner_end > inner {
            let (action, target) = if can_zero {
                (Action::Zero, Target::None)
            } else {
                (Action::Write, Target::Zeroes)
            };
            self.push(action, target, inner, inner_end - inner);
        }
        if end > inner_end {
            self.push_zeroed_edge(inner_end, block, block as usize, 0, end - inner_end);
        }
    }

    fn push_zeroed_edge(&mut self, offset: u64, block: u64, at: usize, lead: usize, length: u64) {
        self.exclusive = true;
        self.staging = 2 * block as usize;
        let zero = Patch::Zero { at: at + lead, length: length as usize };
        self.push_edge(offset, block, at, [Some(zero), None]);
        self.push(Action::Write, Target::Staging(at), offset, block);
    }

    fn push_edge(&mut self, offset: u64, block: u64, at: usize, patches: [Option<Patch>; 2]) {
        self.push(Action::Read, Target::Staging(at), offset, block);
        if let Some(step) = &mut self.list[self.count - 1] {
            step.patches = patches;
        }
    }

    fn push(&mut self, action: Action, target: Target, offset: u64, length: u64) {
        let patches = [None, None];
        self.list[self.count] = Some(Step { action, target, offset, length, patches });
        self.count += 1;
    }
}
