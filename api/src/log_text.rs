//! What a terminal shows of a job's output. A carriage return ends a state of a line that the next state replaces, as
//! progress bars use it; a message shows the last state. Pure.

/// Returns the last state of a line: what is left of it once each carriage return has taken the cursor back.
#[must_use]
pub fn last_state(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    let begin = line[..end].iter().rposition(|byte| *byte == b'\r').map_or(0, |mark| mark + 1);
    &line[begin..end]
}

/// Returns the last `most` lines of an output as a terminal shows them, each of `width` characters at most.
#[must_use]
pub fn last_lines(output: &str, most: usize, width: usize) -> Vec<String> {
    let lines: Vec<&str> = output.lines().collect();
    let last = &lines[lines.len().saturating_sub(most)..];
    let shown = last.iter().map(|line| String::from_utf8_lossy(last_state(line.as_bytes())));
    shown.map(|line| shorten(&line, width)).collect()
}

/// Returns the text with its end replaced by an ellipsis where it is longer than `most` characters.
#[must_use]
pub fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Returns how many leading bytes do not end within a character of UTF-8; all of them where they are no more than the
/// beginning of one.
#[must_use]
pub fn whole_characters(bytes: &[u8]) -> usize {
    let tail = (1..=bytes.len().min(3)).find(|back| {
        let lead = bytes[bytes.len() - back];
        let length = match lead {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        *back < length
    });
    match tail {
        Some(back) if back < bytes.len() => bytes.len() - back,
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_in_its_last_state() {
        for (line, state) in [
            ("plain", "plain"),
            ("of windows\r\n", "of windows"),
            ("\r 1 %\r 50 %\r100 %", "100 %"),
            (" 1 %\r100 %\r", "100 %"),
            ("\r\r", ""),
            ("", ""),
        ] {
            assert_eq!(last_state(line.as_bytes()), state.as_bytes(), "{line:?}");
        }
    }

    #[test]
    fn a_progress_bar_is_one_line_of_bounded_width() {
        let bar: String = (0..400).map(|step| format!("\rTrain: {step}/400 {}", "#".repeat(200))).collect();
        let shown = last_lines(&format!("first\n{bar}\ndone\n"), 2, 80);
        assert_eq!((shown.len(), shown[1].as_str()), (2, "done"));
        assert!(shown[0].starts_with("Train: 399/400 ###") && shown[0].ends_with('…'), "{shown:?}");
        assert_eq!(shown[0].chars().count(), 80);
        assert_eq!(last_lines("é\n", 9, 1), ["é"]);
    }

    #[test]
    fn a_torn_character_is_left_out() {
        let text = "aé€🦀".as_bytes();
        assert_eq!(whole_characters(text), text.len());
        assert_eq!(whole_characters(&text[..text.len() - 1]), "aé€".len());
        assert_eq!(whole_characters(&text[..5]), "aé".len());
        assert_eq!(whole_characters(&text[..2]), 1);
        assert_eq!(whole_characters(&"é".as_bytes()[..1]), 1);
        assert_eq!(whole_characters(b"\xff\xff"), 2);
    }
}
