//! A server on standard streams, with as many calls in flight as there are connections over HTTP.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::time::{Duration, Instant};

use crate::process::Server;
use crate::workload::Next;
use crate::{Measured, Options, Result};

pub fn run(options: &Options, mut server: Server) -> Result<Measured> {
    let mut input = server.input()?;
    let mut output = BufReader::new(server.output()?);
    let (mut line, mut answer) = (Vec::new(), Vec::new());
    let mut id = 1_000_000_000;
    let mut in_flight = HashMap::new();
    let mut send = |in_flight: &mut HashMap<u64, Instant>| -> Result {
        id += 1;
        line.clear();
        options.workload.write(&mut line, id, None);
        line.push(b'\n');
        in_flight.insert(id, Instant::now());
        Ok(input.write_all(&line)?)
    };
    let mut receive = |in_flight: &mut HashMap<u64, Instant>| -> Result<Instant> {
        answer.clear();
        output.read_until(b'\n', &mut answer)?;
        let id = options.workload.id_of(&answer)?;
        let at = in_flight.remove(&id).ok_or("a response with an unknown id")?;
        match options.workload.check(&answer, &[], id, 0)? {
            Next::Done => Ok(at),
            Next::Again(_) => Err("workloads with questions are not supported over stdio".into()),
        }
    };
    send(&mut in_flight)?;
    receive(&mut in_flight)?;
    let (first, idle) = (server.started.elapsed().as_secs_f64(), server.memory()?.0);

    for _ in 0..options.connections {
        send(&mut in_flight)?;
    }
    let warm_up = Instant::now() + Duration::from_secs_f64(options.warm_up);
    while Instant::now() < warm_up {
        receive(&mut in_flight)?;
        send(&mut in_flight)?;
    }
    let (begin, cpu, warm) = (Instant::now(), server.cpu()?, server.memory()?.0);
    let end = begin + Duration::from_secs_f64(options.seconds);
    let mut taken = Vec::new();
    while Instant::now() < end && (taken.len() as u64) < options.calls {
        let at = receive(&mut in_flight)?;
        taken.push(at.elapsed().as_nanos() as u64);
        send(&mut in_flight)?;
    }
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), server.cpu()? - cpu);
    let (rss, peak) = server.memory()?;
    Ok(Measured { taken, seconds, cpu, first, idle, warm, rss, peak })
}
