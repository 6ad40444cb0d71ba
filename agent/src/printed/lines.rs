//! Bytes into lines, in whatever pieces they come.

/// Of a longer line the beginning counts, bytes.
const LONGEST: usize = 8 * 1024;

/// Splits at `\n` and `\r`: progress bars write over themselves.
#[derive(Default)]
pub(super) struct Lines {
    /// The beginning of the line that is not complete.
    rest: Vec<u8>,
    /// The rest of the line belongs to what was not read.
    torn: bool,
}

impl Lines {
    /// Takes a piece; hands on each line that it completes. False, and the rest of the piece is lost, once `line` says so.
    pub(super) fn take(&mut self, piece: &[u8], mut line: impl FnMut(&[u8]) -> bool) -> bool {
        let mut parts = piece.split(|byte| matches!(byte, b'\n' | b'\r')).peekable();
        while let Some(part) = parts.next() {
            let room = if self.torn { 0 } else { LONGEST - self.rest.len() };
            self.rest.extend_from_slice(&part[..part.len().min(room)]);
            if parts.peek().is_some() && !self.end(&mut line) {
                return false;
            }
        }
        true
    }

    /// What follows is not what came next: the line that both would make is none.
    pub(super) fn tear(&mut self) {
        self.rest.clear();
        self.torn = true;
    }

    /// The end of what is there ends its last line.
    pub(super) fn end(&mut self, line: &mut impl FnMut(&[u8]) -> bool) -> bool {
        let whole = !std::mem::take(&mut self.torn) && !self.rest.is_empty();
        let goes_on = !whole || line(&self.rest);
        self.rest.clear();
        goes_on
    }
}
