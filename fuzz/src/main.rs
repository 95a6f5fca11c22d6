//! `make corpora`: writes the inputs from which fuzzers start.

use std::fs;

fn main() -> std::io::Result<()> {
    for target in forebay_fuzz::TARGETS {
        let corpus = target.corpus();
        fs::create_dir_all(&corpus)?;
        for (name, bytes) in (target.seeds)() {
            fs::write(corpus.join(name), bytes)?;
        }
    }
    Ok(())
}
