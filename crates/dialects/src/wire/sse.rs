//! A decoder for server-sent events with their names and ids, in bounded memory.
//!
//! The events of `multi-turn-sse` have no data. The HTML standard does not dispatch such events, so
//! that ordinary decoders do not report them.

/// An event: a block of lines that ends with an empty line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The name. Empty: `message`.
    pub name: String,
    /// The id, if the event has one.
    pub id: Option<String>,
    /// The lines of data, joined by line feeds.
    pub data: String,
}

/// The error of an event that is longer than the limit, or is not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is longer than {0} bytes, or is not UTF-8")]
pub struct InvalidEvent(usize);

/// Splits a byte stream into events.
///
/// ```
/// use mrtr_dialects::wire::sse::Decoder;
///
/// let mut decoder = Decoder::new(1024);
/// let mut events = Vec::new();
/// decoder.push(b"event: input_required\nid: 4\n\n", |event| events.push(event))?;
/// assert_eq!((&*events[0].name, events[0].id.as_deref()), ("input_required", Some("4")));
/// # Ok::<(), mrtr_dialects::wire::sse::InvalidEvent>(())
/// ```
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about the bytes so far")]
pub struct Decoder {
    limit: usize,
    line: Vec<u8>,
    event: Event,
    length: usize,
    is_empty: bool,
    has_data: bool,
    after_cr: bool,
    is_first_line: bool,
}

impl Decoder {
    /// Creates a decoder for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            event: Event::default(),
            length: 0,
            is_empty: true,
            has_data: false,
            after_cr: false,
            is_first_line: true,
        }
    }

    /// Decodes more bytes, and passes on each event that they complete.
    ///
    /// # Errors
    ///
    /// If an event is too long or is not UTF-8. The decoder cannot be used after that.
    pub fn push(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(Event),
    ) -> Result<(), InvalidEvent> {
        for byte in bytes {
            if std::mem::take(&mut self.after_cr) && *byte == b'\n' {
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                self.after_cr = *byte == b'\r';
                self.end_line(&mut on_event)?;
                continue;
            }
            self.length += 1;
            if self.length > self.limit {
                return Err(InvalidEvent(self.limit));
            }
            self.line.push(*byte);
        }
        Ok(())
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(Event)) -> Result<(), InvalidEvent> {
        let line = std::mem::take(&mut self.line);
        let line = str::from_utf8(&line).map_err(|_| InvalidEvent(self.limit))?;
        // A stream may begin with a byte order mark.
        let is_first = std::mem::take(&mut self.is_first_line);
        let line = line.strip_prefix('\u{feff}').filter(|_| is_first).unwrap_or(line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            (self.length, self.has_data) = (0, false);
            if !std::mem::replace(&mut self.is_empty, true) {
                on_event(event);
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // Comments and unknown fields are ignored.
            _ => return Ok(()),
        }
        self.is_empty = false;
        Ok(())
    }
}
