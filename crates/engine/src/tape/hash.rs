//! A running hash of effects. It distinguishes two streams, but does not protect against malice.

use forebay_effect::{Device, Effect, Owner, Place, Segment, Token};

/// Effects seen so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EffectHash {
    pub effects: u64,
    pub hash: u64,
}

impl EffectHash {
    pub fn add(&mut self, effect: &Effect, segments: &[Segment]) {
        self.effects += 1;
        match *effect {
            Effect::Copy { from, to, length } => {
                self.words([1, length.into()]);
                self.place(from);
                self.place(to);
            }
            Effect::Zero { to, length } => {
                self.words([2, length.into()]);
                self.place(to);
            }
            Effect::Checksum { token, seed } => self.words([3, number(token), seed.into()]),
            Effect::Reply { request, result } => {
                self.words([4, request.0, result.map_or_else(|e| 1 + e as u64, |()| 0)]);
            }
            Effect::Read { token, device, offset, length } => {
                self.words([5, number(token), device_number(device), offset, length.into()]);
            }
            Effect::Write { token, device, offset, length } => {
                self.words([6, number(token), device_number(device), offset, length.into()]);
            }
            Effect::WriteZeroes { token, device, offset, length, punch } => {
                let device = device_number(device);
                self.words([7, number(token), device, offset, length, punch.into()]);
            }
            Effect::Sync { token, device } => {
                self.words([8, number(token), device_number(device)]);
            }
        }
        for segment in segments {
            self.words([segment.length.into()]);
            self.place(segment.place);
        }
    }

    fn place(&mut self, place: Place) {
        match place {
            Place::Frame { frame, offset } => self.words([1, frame.0.into(), offset.into()]),
            Place::Request { request, offset } => self.words([2, request.0, offset.into()]),
            Place::Meta { buffer, offset } => self.words([3, buffer.0.into(), offset.into()]),
            Place::Void => self.words([4]),
        }
    }

    fn words<const N: usize>(&mut self, words: [u64; N]) {
        for word in words {
            // A round of multiply and rotate for each word; the constant is 2^64 / golden ratio.
            self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }
}

/// One number for a token, also on the tape.
pub(super) fn number(token: Token) -> u64 {
    let owner = match token.owner {
        Owner::Front => 0,
        Owner::Log => 1,
        Owner::Shard(n) => 2 + u64::from(n),
    };
    owner << 32 | u64::from(token.index)
}

/// The token of a number.
pub(super) fn token(number: u64) -> Option<Token> {
    let owner = match number >> 32 {
        0 => Owner::Front,
        1 => Owner::Log,
        n => Owner::Shard(u8::try_from(n - 2).ok()?),
    };
    Some(Token { owner, index: number as u32 })
}

fn device_number(device: Device) -> u64 {
    match device {
        Device::Flash => 0,
        Device::Backing(volume) => 1 + u64::from(volume.0),
    }
}
