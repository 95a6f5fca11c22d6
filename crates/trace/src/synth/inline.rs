//! Workloads on one line: `PATTERN:key=value,... + PATTERN:... then PATTERN:...`.

use toml::{Table, Value};

/// Keys that belong to a phase, not to a component.
const PHASE_KEYS: [&str; 6] = ["requests", "duration", "arrival", "rate", "clients", "service"];
/// Keys whose values are always text.
const TEXT_KEYS: [&str; 2] = ["volume", "pattern"];

/// Parses a line into the table that an equivalent TOML file would give. Also returns the phase
/// keys that several components of a phase give.
pub(super) fn parse(text: &str) -> Result<(Table, Vec<String>), String> {
    let mut spec = Table::new();
    let mut repeated = Vec::new();
    let mut phases = Vec::new();
    for phase_text in text.split(" then ") {
        let mut phase = Table::new();
        let mut components = Vec::new();
        for part in phase_text.split('+') {
            let component = component(part.trim(), &mut phase, &mut spec, &mut repeated)?;
            components.push(Value::Table(component));
        }
        phase.insert("component".to_owned(), Value::Array(components));
        phases.push(Value::Table(phase));
    }
    spec.insert("phase".to_owned(), Value::Array(phases));
    Ok((spec, repeated))
}

fn component(
    part: &str,
    phase: &mut Table,
    spec: &mut Table,
    repeated: &mut Vec<String>,
) -> Result<Table, String> {
    let (pattern, keys) = part.split_once(':').unwrap_or((part, ""));
    let mut table = Table::new();
    table.insert("pattern".to_owned(), Value::String(pattern.trim().to_owned()));
    for pair in keys.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("`{pair}` does not have the form key=value"))?;
        let (key, value) = (key.trim(), value.trim());
        let target = match key {
            "seed" => &mut *spec,
            key if PHASE_KEYS.contains(&key) => &mut *phase,
            _ => &mut table,
        };
        let value = to_value(key, value);
        let of_phase = PHASE_KEYS.contains(&key);
        match target.get(key) {
            Some(old) if *old != value && of_phase => {
                return Err(format!(
                    "`{key}` is set twice, with different values; it applies to all components of \
                     a phase together"
                ));
            }
            Some(old) if *old != value => return Err(format!("`{key}` is given twice")),
            Some(_) if of_phase && !repeated.iter().any(|repeated| repeated == key) => {
                repeated.push(key.to_owned());
            }
            _ => {}
        }
        target.insert(key.to_owned(), value);
    }
    Ok(table)
}

fn to_value(key: &str, text: &str) -> Value {
    if TEXT_KEYS.contains(&key) {
        return Value::String(text.to_owned());
    }
    if let Ok(n) = text.parse() {
        return match key {
            "weight" | "write" | "trim" | "fua" | "theta" => Value::Float(n as f64),
            _ => Value::Integer(n),
        };
    }
    match (text.parse::<f64>(), text) {
        (Ok(x), _) => Value::Float(x),
        (_, "yes" | "true") => Value::Boolean(true),
        (_, "no" | "false") => Value::Boolean(false),
        _ => Value::String(text.to_owned()),
    }
}
