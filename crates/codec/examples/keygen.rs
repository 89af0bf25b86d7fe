//! Prints a new key as a line for `KeyRing::from_text`, `from_env` or `from_file`.
//!
//! `cargo run -p mrtr-codec --example keygen [active|staged]`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let state = std::env::args().nth(1).unwrap_or_else(|| "active".to_owned());
    if !matches!(state.as_str(), "active" | "staged") {
        return Err(format!("a new key is `active` or `staged`, not {state:?}").into());
    }
    let secret = mrtr_codec::Secret::generate()?;
    say(&format!("{state} {}", *secret.to_base64url()));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "it is a program's output")]
fn say(text: &str) {
    println!("{text}");
}
