//! Flushes: the dirty blocks of a volume go to where they are durable, round by round. Requests that come
//! while a round is under way join the next one.

use crate::cache::Cache;
use crate::front::Stage;
use crate::shard::{FlushState, ShardContext};
use crate::world::around;

/// Blocks of a flush that a shard starts in one turn.
const FLUSH_BLOCKS: u32 = 64;

impl Cache {
    /// A flush request: it joins the next round of its volume.
    pub(crate) fn begin_flush(&mut self, request: u32) {
        let r = &mut self.world.front.requests[request];
        r.stage = Stage::Flushing;
        let volume = r.volume;
        if !self.world.config.write_policy.write_back {
            return self.make_durable(request);
        }
        let flushing = &mut self.world.front.volumes[usize::from(volume)].flushing;
        flushing.next.push(request);
        if flushing.active.is_empty() {
            self.begin_flush_round(volume);
        }
    }

    fn begin_flush_round(&mut self, volume: u16) {
        let v = usize::from(volume);
        let flushing = &mut self.world.front.volumes[v].flushing;
        core::mem::swap(&mut flushing.active, &mut flushing.next);
        (flushing.shards_left, flushing.failed) = (self.world.shards.len() as u32, false);
        for shard in &mut self.world.shards {
            shard.flush_begin(v);
        }
        self.flushing |= 1 << volume;
        self.push_flushes();
    }

    pub(crate) fn push_flushes(&mut self) -> bool {
        let mut any = false;
        let mut volumes = self.flushing;
        while volumes != 0 {
            let volume = volumes.trailing_zeros() as u16;
            volumes &= volumes - 1;
            let v = usize::from(volume);
            for n in 0..self.world.shards.len() {
                let state =
                    self.world.shards[n].flush_step(&mut around!(self.world), v, FLUSH_BLOCKS);
                let flushing = &mut self.world.front.volumes[v].flushing;
                match state {
                    FlushState::Done { failed } => {
                        flushing.shards_left -= 1;
                        flushing.failed |= failed;
                        any = true;
                    }
                    FlushState::More => any = true,
                    FlushState::Idle | FlushState::Waiting => {}
                }
            }
            if self.world.front.volumes[v].flushing.shards_left == 0 {
                self.end_flush_round(volume);
                any = true;
            }
        }
        any
    }

    fn end_flush_round(&mut self, volume: u16) {
        let v = usize::from(volume);
        self.flushing &= !(1 << volume);
        let flushing = &mut self.world.front.volumes[v].flushing;
        let failed = flushing.failed;
        let mut active = core::mem::take(&mut flushing.active);
        for request in active.drain(..) {
            if failed {
                let r = &mut self.world.front.requests[request];
                r.error.get_or_insert(forebay_effect::IoError::Device);
                if self.may_repeat(request) {
                    self.world.front.requests[request].error = None;
                    self.repeat_last_stage(request);
                } else {
                    self.world.front.reply(request, &mut self.world.effects);
                }
            } else {
                self.make_durable(request);
            }
        }
        let flushing = &mut self.world.front.volumes[v].flushing;
        flushing.active = active;
        if !flushing.next.is_empty() {
            self.begin_flush_round(volume);
        }
    }
}
