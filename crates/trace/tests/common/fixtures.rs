//! Small traces of our own, one for each format, and their meaning.

/// A trace and its requests as `time ns, volume, operation, offset, length`.
#[derive(Clone, Copy, Debug)]
pub struct Fixture {
    pub format: &'static str,
    content: Content,
    pub meaning: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Text(&'static str),
    Binary(fn() -> Vec<u8>),
}

impl Fixture {
    pub fn bytes(&self) -> Vec<u8> {
        match self.content {
            Content::Text(text) => text.as_bytes().to_vec(),
            Content::Binary(make) => make(),
        }
    }

    pub fn is_text(&self) -> bool {
        matches!(self.content, Content::Text(_))
    }
}

use Content::{Binary, Text};

pub const FIXTURES: &[Fixture] = &[
    Fixture {
        format: "msr",
        content: Text(
            "128166372003061629,src,0,Read,7014609920,24576,41286\n\
             128166372016382155,src,1,Write,1317441536,8192,1963\n\
             128166372026382245,src,0,write,2436440064,4096,1835\n",
        ),
        meaning: "0 src_0 read 7014609920 24576\n\
                  1332052600 src_1 write 1317441536 8192\n\
                  2332061600 src_0 write 2436440064 4096\n",
    },
    Fixture {
        format: "csv",
        content: Text(
            "# made by hand\n\
             time_us,volume,op,flags,offset,length\n\
             5,a,write,1,4096,512\n\
             7.5,b,read,0,0,1024\n\
             8,a,trim,0,0,1048576\n\
             8,a,flush,0,0,0\n\
             9,a,write-zeroes,0,512,512\n",
        ),
        meaning: "0 a write+fua 4096 512\n\
                  2500 b read 0 1024\n\
                  3000 a trim 0 1048576\n\
                  3000 a flush 0 0\n\
                  4000 a writezeroes 512 512\n",
    },
    Fixture {
        format: "vscsi-v1",
        content: Binary(|| {
            let r = |length: u32, command: u16, lbn: u64, us: u64| {
                let mut r = Vec::new();
                r.extend(9u32.to_le_bytes());
                r.extend(length.to_le_bytes());
                r.extend(1u32.to_le_bytes());
                r.extend(command.to_le_bytes());
                r.extend(0x100u16.to_le_bytes());
                r.extend(lbn.to_le_bytes());
                r.extend(us.to_le_bytes());
                r
            };
            [
                r(512, 0x2a, 42, 1000),
                r(0, 0x12, 0, 1001), // INQUIRY: not a request
                r(65536, 0x28, 3, 1500),
                r(4096, 0x8a, 1 << 33, 1501),
                r(0, 0x35, 0, 1502),
            ]
            .concat()
        }),
        meaning: "0 memory write 21504 512\n\
                  500000 memory read 1536 65536\n\
                  501000 memory write 4398046511104 4096\n\
                  502000 memory flush 0 0\n",
    },
    Fixture {
        format: "vscsi-v2",
        content: Binary(|| {
            let r = |length: u32, command: u16, lbn: u64, us: u64| {
                let mut r = Vec::new();
                r.extend(command.to_le_bytes());
                r.extend(0x200u16.to_le_bytes());
                r.extend(9u32.to_le_bytes());
                r.extend(length.to_le_bytes());
                r.extend(1u32.to_le_bytes());
                r.extend(lbn.to_le_bytes());
                r.extend(us.to_le_bytes());
                r.extend(77u64.to_le_bytes());
                r
            };
            [r(512, 0x2a, 42, 1000), r(65536, 0x28, 3, 1500)].concat()
        }),
        meaning: "0 memory write 21504 512\n500000 memory read 1536 65536\n",
    },
    Fixture {
        format: "vscsi-csv",
        content: Text(
            "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,4096,8\n\
             1,5633899,12,0,0\n",
        ),
        meaning: "0 memory write 21981565440 512\n1000000000 memory read 4096 4096\n",
    },
    Fixture {
        format: "oracleGeneral",
        content: Binary(|| {
            let r = |s: u32, object: u64, size: u32, next: i64| {
                [
                    &s.to_le_bytes()[..],
                    &object.to_le_bytes(),
                    &size.to_le_bytes(),
                    &next.to_le_bytes(),
                ]
                .concat()
            };
            [r(100, 8, 4096, 3), r(100, 16, 512, -1), r(103, 8, 4096, -1)].concat()
        }),
        meaning: "0 memory read 4096 4096\n0 memory read 8192 512\n3000000000 memory read 4096 4096\n",
    },
    Fixture {
        format: "lcs",
        content: Binary(|| {
            let mut bytes = vec![0; 8192];
            bytes[..8].copy_from_slice(&0x1234_5678_9abc_def0_u64.to_le_bytes());
            bytes[8] = 3;
            for (s, object, size, op, tenant) in
                [(7u32, 8u64, 4096u64, 12u32, 0u32), (8, 9, 512, 13, 5), (8, 8, 4096, 1, 0)]
            {
                bytes.extend(s.to_le_bytes());
                bytes.extend(object.to_le_bytes());
                bytes.extend(size.to_le_bytes());
                bytes.extend((op | tenant << 8).to_le_bytes());
                bytes.extend(0u32.to_le_bytes());
                bytes.extend(i64::MAX.to_le_bytes());
            }
            bytes
        }),
        meaning: "0 tenant0 read 4096 4096\n1000000000 tenant5 write 4608 512\n\
                  1000000000 tenant0 read 4096 4096\n",
    },
    Fixture {
        format: "blktrace",
        content: Binary(|| {
            let r = |ns: u64, sector: u64, bytes: u32, action: u32, category: u32, pdu: &[u8]| {
                let mut r = Vec::new();
                r.extend(0x6561_7407u32.to_le_bytes());
                r.extend(1u32.to_le_bytes());
                r.extend(ns.to_le_bytes());
                r.extend(sector.to_le_bytes());
                r.extend(bytes.to_le_bytes());
                r.extend((action | category << 16).to_le_bytes());
                r.extend(697u32.to_le_bytes());
                r.extend((8u32 << 20 | 16).to_le_bytes());
                r.extend(3u32.to_le_bytes());
                r.extend(0u16.to_le_bytes());
                r.extend((pdu.len() as u16).to_le_bytes());
                r.extend(pdu);
                r
            };
            [
                r(5, 0, 0, 0, 1 << 10, b"kjournald\0"),
                r(10, 8, 4096, 1, 1 << 1, b""),
                r(12, 8, 4096, 7, 1 << 1, b"abcd"),
                r(20, 16, 512, 1, 1, b"x"),
                r(30, 24, 512, 1, 1 << 1 | 1 << 15, b""),
                r(40, 0, 0, 1, 1 << 1 | 1 << 2, b""),
                r(50, 0, 1 << 20, 1, 1 << 1 | 1 << 13, b""),
            ]
            .concat()
        }),
        meaning: "0 8:16 write 4096 4096\n10 8:16 read 8192 512\n20 8:16 write+fua 12288 512\n\
                  30 8:16 flush 0 0\n40 8:16 trim 0 1048576\n",
    },
    Fixture {
        format: "blkparse",
        content: Text(
            "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n  \
             8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]\n  \
             8,16   3        3     0.000002829   697  Q WFS 100 + 16 [a b]\n  \
             8,0    3        4     0.000005000   697  Q   D 0 + 2048 [fstrim]\n  \
             8,0    3        5     0.000005500   697  Q FWS [jbd2]\n  \
             8,0    3        6     0.000006000   697  Q   N [smartd]\n  \
             8,0    3        7     0.000007000   697  C   W 223490 + 8 [0]\n\
             CPU3 (8,0):\n Reads Queued:           0,        0KiB\n\n\
             Throughput (R/W): 0KiB/s / 55KiB/s\n",
        ),
        meaning: "0 8:0 write 114426880 4096\n1000 8:16 write+fua 51200 8192\n\
                  3171 8:0 trim 0 1048576\n3671 8:0 flush 0 0\n",
    },
    Fixture {
        format: "blkparse-csv",
        content: Text(
            "259,1,2,0.000000517,17022,WM,465569920,8\n259,1,5,0.000007895,17022,FWFS,64,16\n",
        ),
        meaning: "0 259:1 write 238371799040 4096\n7378 259:1 write+fua 32768 8192\n",
    },
    Fixture {
        format: "fiu",
        content: Text(
            "100 2522 kjournald 64 2 W 6 0 98b9cb7e1dd888f9dac2bf08af1c3cb2bf619eac0cdf3f68d496ea9344137e8b\n\
             250 2522 cat 8 1 R 8 16 98b9cb7e1dd888f9dac2bf08af1c3cb2\n",
        ),
        meaning: "0 6:0 write 32768 1024\n150 8:16 read 4096 512\n",
    },
    Fixture {
        format: "cydonia",
        content: Text("10,6218919,w,4096\n1560,8,r,512\n"),
        meaning: "0 memory write 3184086528 4096\n1550000 memory read 4096 512\n",
    },
    Fixture {
        format: "disksim",
        content: Text("13.191135\t30\t8\t5\t1\n17.829285\t20\t576560\t6\t0\n24\t30\t0\t24\t3\n"),
        meaning: "0 30 read 4096 2560\n4638150 20 write 295198720 3072\n10808865 30 read 0 12288\n",
    },
    Fixture {
        format: "mqsim",
        content: Text("938513000 4 264719034 16 0\n938828000 3 8 16 1\n"),
        meaning: "0 4 write 135536145408 8192\n315000 3 read 4096 8192\n",
    },
    Fixture {
        format: "arc",
        content: Text("230027 8 0 0\n1842745 64 0 1\n"),
        meaning: "0 memory read 117773824 4096\n0 memory read 943485440 32768\n",
    },
    Fixture {
        format: "spc",
        content: Text("0,20941264,8192,W,0.551706\n1,8, 512,r,0.554041,extra\n"),
        meaning: "0 asu0 write 10721927168 8192\n2335000 asu1 read 4096 512\n",
    },
    Fixture {
        format: "alibaba",
        content: Text(
            "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n",
        ),
        meaning: "0 419 write 8792731648 16384\n46000 725 read 59110326272 360448\n",
    },
    Fixture {
        format: "tencent",
        content: Text("1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n"),
        meaning: "0 1063 read 6610407424 65536\n1000000000 1627 write 3245408256 4096\n",
    },
    Fixture {
        format: "systor17",
        content: Text(
            "Timestamp,Response,IOType,LUN,Offset,Size\n\
             1456124402.000044000,0.000256,R,4,3141632,4096\n\
             1456124402.000100000,,W,0,8192,512\n",
        ),
        meaning: "0 4 read 3141632 4096\n56000 0 write 8192 512\n",
    },
    Fixture {
        format: "iolog",
        content: Text(
            "fio version 3 iolog\n\
             0 /dev/sdb add\n\
             2 /dev/sdb open\n\
             5 /dev/sdb write 4096 4096\n\
             9 /dev/sdb trim 0 8192\n\
             9 /dev/sdb datasync 0 0\n\
             10 /dev/sdb close\n",
        ),
        meaning: "0 /dev/sdb write 4096 4096\n4000 /dev/sdb trim 0 8192\n4000 /dev/sdb flush 0 0\n",
    },
    Fixture {
        format: "iolog",
        content: Text(
            "fio version 2 iolog\nf add\nf open\nf read 0 512\nf wait 30 0\nf read 512 512\n\
             f wait 100 0\nf sync\nf close\n",
        ),
        meaning: "0 f read 0 512\n30000 f read 512 512\n130000 f flush 0 0\n",
    },
];
