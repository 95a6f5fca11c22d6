//! Detects the sequential streams of a volume: runs of requests in which each request starts where
//! an earlier one ended.

/// Streams remembered for each volume. A new one replaces a single request that nothing has
/// continued, or else the stream that was continued least recently.
const STREAMS: usize = 32;

/// A stream has ended when this many other requests came since it was last continued.
const OTHERS_MAX: u64 = 1 << 12;

/// Bytes: a request continues a stream if it starts within this distance of the stream's end.
/// Clients have several requests in flight, and these arrive in any order.
const WINDOW: u64 = 256 << 10;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    start: u64,
    end: u64,
    bytes: u64,
    writes: bool,
    /// Number of the request that last continued it; 0 if the entry is unused.
    last: u64,
    /// Whether any request has continued it.
    lives: bool,
}

/// The streams of a volume; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    requests: u64,
}

impl Streams {
    /// Notes a request and returns the length in bytes of the stream that it continues, before the
    /// request; 0 if it continues none. The length is the number of bytes moved, but at most the
    /// range they cover: reading one place repeatedly is not a stream. A stream that skips more
    /// bytes than it moves is restarted.
    pub fn go_on(&mut self, writes: bool, offset: u64, length: u64) -> u64 {
        self.requests += 1;
        let end = offset + length;
        let near = |s: &&mut Stream| {
            s.last != 0
                && s.writes == writes
                && offset.abs_diff(s.end) <= WINDOW
                && offset >= s.start
        };
        if let Some(stream) = self.streams.iter_mut().find(near) {
            let before = stream.bytes.min(stream.end - stream.start);
            stream.end = stream.end.max(end);
            stream.bytes += length;
            (stream.last, stream.lives) = (self.requests, true);
            if stream.end - stream.start > 2 * stream.bytes + WINDOW {
                (stream.start, stream.end, stream.bytes) = (offset, end, length);
            }
            return before;
        }
        let now = self.requests;
        let lives = |s: &Stream| s.lives && now - s.last <= OTHERS_MAX;
        let next = self.streams.iter_mut().min_by_key(|s| (lives(s), s.last));
        *next.expect("the table of streams is not empty") =
            Stream { start: offset, end, bytes: length, writes, last: now, lives: false };
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB_64: u64 = 64 << 10;

    #[test]
    fn a_stream_is_as_long_as_what_went_before() {
        let mut streams = Streams::default();
        for n in 0..10 {
            assert_eq!(streams.go_on(false, n * KIB_64, KIB_64), n * KIB_64);
            // Another stream, and a scattered request, do not end it.
            assert_eq!(streams.go_on(true, (1 << 30) + n * KIB_64, KIB_64), n * KIB_64);
            assert_eq!(streams.go_on(false, (n + 2) << 32, KIB_64), 0);
        }
    }

    #[test]
    fn requests_of_a_stream_may_overtake_one_another() {
        let mut streams = Streams::default();
        for n in [0, 2, 1, 3, 5, 4, 7, 6] {
            streams.go_on(false, n * KIB_64, KIB_64);
        }
        assert_eq!(streams.go_on(false, 8 * KIB_64, KIB_64), 8 * KIB_64);
    }

    #[test]
    fn a_place_that_is_read_again_and_again_is_no_stream() {
        let mut streams = Streams::default();
        for n in 0..1000 {
            let before = streams.go_on(false, n * 7 % 16 * 4096, 4096);
            assert!(before <= KIB_64, "{before}");
        }
    }

    #[test]
    fn requests_that_skip_most_of_what_they_pass_are_no_stream() {
        let mut streams = Streams::default();
        for n in 0..10_000 {
            assert!(streams.go_on(false, n * 2 * KIB_64, 4096) <= 5 * 4096);
        }
        // Every second block is a stream.
        let mut streams = Streams::default();
        for n in 0..100 {
            assert_eq!(streams.go_on(false, n * 8192, 4096), n * 4096);
        }
    }

    #[test]
    fn scattered_requests_of_a_small_volume_are_no_stream() {
        let mut streams = Streams::default();
        let (mut x, mut longest) = (1_u64, 0);
        for _ in 0..100_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            longest = longest.max(streams.go_on(false, (x >> 33) % 5000 * 4096, 4096));
        }
        assert!(longest < 256 << 10, "{longest}");
    }

    #[test]
    fn scattered_requests_do_not_end_a_stream() {
        let mut streams = Streams::default();
        for n in 0..10 {
            assert_eq!(streams.go_on(false, n * KIB_64, KIB_64), n * KIB_64);
            // A new stream can be displaced until its second request has come.
            let others = if n == 0 { STREAMS as u64 - 1 } else { 500 };
            (1..=others).for_each(|i| _ = streams.go_on(false, (n * 500 + i) << 30, 4096));
        }
        // After many more requests, the stream has ended.
        (1..OTHERS_MAX + 100).for_each(|i| _ = streams.go_on(false, (i + 9000) << 30, 4096));
        assert_eq!(streams.go_on(false, 10 * KIB_64, KIB_64), 0);
    }

    #[test]
    fn of_streams_that_live_the_one_that_went_on_least_lately_gives_way() {
        let mut streams = Streams::default();
        for n in 0..=STREAMS as u64 {
            for k in 0..2 {
                streams.go_on(false, (n << 30) + k * KIB_64, KIB_64);
            }
        }
        assert_eq!(streams.go_on(false, (3 << 30) + 2 * KIB_64, KIB_64), 2 * KIB_64);
        assert_eq!(streams.go_on(false, 2 * KIB_64, KIB_64), 0, "the first");
    }
}
