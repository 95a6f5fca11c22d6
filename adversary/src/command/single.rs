//! Single runs: prints, shrinks and replays them.

use std::path::Path;

use forebay_adversary::kind::Kind;
use forebay_adversary::tape::{Playback, Recorder, Tape, shrink};
use forebay_device::choices::{Choices, Seeded};

/// Plays a run and prints it step by step.
fn tell(mut kind: Kind, choices: &mut dyn Choices) -> Result<(), String> {
    kind.plan.trace = Some(|line| println!("{line}"));
    let seen = kind.play(choices)?;
    println!("{seen:#?}");
    Ok(())
}

pub fn seed(name: &str, seed: u64, keep: Option<&Path>) -> Result<(), String> {
    let kind = Kind::find(name)?;
    println!("{:#?}", kind.scenario(&mut Seeded::new(seed)));
    let Err(failure) = tell(kind, &mut Seeded::new(seed)) else { return Ok(()) };
    if let Some(path) = keep {
        let tape = shrunk(&kind, seed)?;
        std::fs::write(path, tape.encode()).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("--- shrunk to {} choices, in {}", tape.choices.len(), path.display());
        println!("{:#?}", kind.scenario(&mut Playback::new(&tape.choices)));
        let _ = tell(kind, &mut Playback::new(&tape.choices));
        println!("--- {}", tape.failure);
    }
    Err(failure)
}

/// Returns the shortest list of choices that was found to fail like the seed.
pub fn shrunk(kind: &Kind, seed: u64) -> Result<Tape, String> {
    let mut seeded = Seeded::new(seed);
    let mut recorder = Recorder::new(&mut seeded);
    let Err(first) = kind.play(&mut recorder) else {
        return Err(format!("seed {seed} does not fail"));
    };
    let sort =
        |failure: &str| failure.chars().take_while(|c| !c.is_ascii_digit()).collect::<String>();
    let wanted = sort(&first);
    let choices = shrink(recorder.choices, |candidate| {
        let mut playback = Playback::new(candidate);
        let mut recorder = Recorder::new(&mut playback);
        let failure = kind.play(&mut recorder).err()?;
        (sort(&failure) == wanted).then_some(recorder.choices)
    });
    let failure = kind.play(&mut Playback::new(&choices)).err().unwrap_or(first);
    Ok(Tape { kind: kind.full_name(), failure, choices })
}

pub fn replay(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let tape = Tape::decode(&text)?;
    let kind = Kind::find(&tape.kind)?;
    println!("{:#?}", kind.scenario(&mut Playback::new(&tape.choices)));
    println!("this run was kept because it failed: {}", tape.failure);
    tell(kind, &mut Playback::new(&tape.choices))
}
