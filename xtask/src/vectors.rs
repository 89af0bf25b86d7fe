//! Checks the token format's vectors against a second implementation, which was written from the
//! document alone.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::Result;
use crate::run::{OPTIMIZED, build, cargo, output, root, run as step, scratch};
use crate::tools::python;

/// Number of fresh tokens in each direction.
const FRESH: usize = 200;

pub fn run(args: &[String]) -> Result {
    let generator = build()?.join("examples/vectors");
    let committed = root().join("crates/codec/vectors");
    if args.iter().any(|arg| arg == "--write") {
        return step(Command::new(&generator).arg("write").arg(&committed));
    }
    let made = scratch("vectors")?;
    step(Command::new(&generator).arg("write").arg(&made))?;
    let mut vectors = Vec::new();
    for name in ["tokens.json", "canonical.json"] {
        let text = fs::read_to_string(committed.join(name))?;
        if text != fs::read_to_string(made.join(name))? {
            return Err(format!(
                "{name} differs from its generator's output: run `cargo xtask vectors --write`"
            )
            .into());
        }
        vectors.push(serde_json::from_str::<Vec<Value>>(&text)?);
    }
    let [tokens, canonical] = vectors.as_slice() else { return Err("two files".into()) };

    // The reference must open or reject every vector as recorded.
    let opened = reference(tokens.iter().map(|vector| asked("open", vector)))?;
    for (vector, answer) in tokens.iter().zip(&opened) {
        let keys: &[&str] = if vector.get("refusal").is_some() {
            &["refusal"]
        } else {
            &["issued", "expires", "body"]
        };
        same(vector, answer, keys)?;
    }
    let forms = reference(canonical.iter().map(|vector| asked("canonical", vector)))?;
    for (vector, answer) in canonical.iter().zip(&forms) {
        let keys: &[&str] =
            if vector.get("refusal").is_some() { &["refusal"] } else { &["canonical", "digest"] };
        same(vector, answer, keys)?;
    }
    println!("  the reference agrees on {} tokens and {} texts", tokens.len(), canonical.len());

    // Each implementation must open the tokens of the other.
    let minted = output(Command::new(&generator).arg("mint").arg(FRESH.to_string()))?;
    let minted: Vec<Value> =
        minted.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?;
    for (vector, answer) in minted.iter().zip(&reference(minted.iter().map(|v| asked("open", v)))?)
    {
        same(vector, answer, &["issued", "expires", "body"])?;
    }
    let mut theirs = Vec::new();
    for (vector, answer) in minted.iter().zip(reference(minted.iter().map(|v| asked("seal", v)))?) {
        let mut vector = vector.clone();
        vector["token"] = answer["token"].clone();
        theirs.push(vector);
    }
    let mut check = Command::new(&generator);
    let mut check = check.arg("check").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = check.stdin.take() {
        theirs.iter().try_for_each(|vector| writeln!(stdin, "{vector}"))?;
    }
    let done = check.wait_with_output()?;
    let said: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    if said["opened"] != FRESH {
        return Err(format!("tokens of the reference that ours opened: {said}, not {FRESH}").into());
    }
    println!("  {FRESH} fresh tokens opened in each direction");

    // Runs a million inputs, and the test of wiped memory, optimized, with either library.
    for library in [&[][..], &["--features", "aws-lc"]] {
        let mut test =
            cargo(&["test", "--quiet", "--profile", OPTIMIZED, "--package", "mrtr-codec"]);
        test.args(["--test", "it", "--test", "memory"]).args(library);
        step(test.args(["--", "--include-ignored"]))?;
    }
    Ok(())
}

fn asked(what: &str, vector: &Value) -> Value {
    let keys: &[&str] = match what {
        "open" => &["secrets", "audience", "token", "binding", "now"],
        "seal" => &["secrets", "audience", "binding", "issued", "expires", "body"],
        _ => &["text"],
    };
    let mut request = json!({ "do": what });
    for key in keys {
        request[*key] = vector[*key].clone();
    }
    if what == "seal" {
        request["nonce"] = Value::Null;
    }
    request
}

fn same(vector: &Value, answer: &Value, keys: &[&str]) -> Result {
    let differs = keys.iter().find(|key| vector[**key] != answer[**key]);
    match differs {
        None => Ok(()),
        Some(key) => {
            let of = vector["name"].as_str().or(vector["text"].as_str()).unwrap_or_default();
            Err(format!(
                "{of:.80?}: {key} is {}, but the reference responds {answer:.300}",
                vector[*key]
            )
            .into())
        }
    }
}

/// Sends requests to the reference, one line each, and returns its responses.
fn reference(requests: impl Iterator<Item = Value>) -> Result<Vec<Value>> {
    let mut program = Command::new(python("python")?);
    program.arg(root().join("crates/codec/vectors/reference.py"));
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let lines = requests.map(|request| request.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    // The reference responds while it reads, so writing must not wait for reading.
    let writing = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let done = child.wait_with_output()?;
    writing.join().map_err(|_| "the writer failed")??;
    if !done.status.success() {
        return Err(format!("the reference implementation ended with {}", done.status).into());
    }
    let text = String::from_utf8(done.stdout)?;
    Ok(text.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
}
