//! Templates of JSON text. A template is readable in the source, minified once, and rendered by copying slices.

pub(crate) struct Template {
    pieces: Vec<Piece>,
}

enum Piece {
    Literal(String),
    Placeholder(&'static str),
}

impl Template {
    /// Minifies `source` and finds its placeholders, `{{name}}`.
    pub(crate) fn new(source: &'static str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = source;
        let mut in_string = false;
        while let Some((literal, after)) = rest.split_once("{{") {
            pieces.push(Piece::Literal(minify(literal, &mut in_string)));
            let (name, after) = after.split_once("}}").unwrap_or((after, ""));
            pieces.push(Piece::Placeholder(name));
            rest = after;
        }
        pieces.push(Piece::Literal(minify(rest, &mut in_string)));
        Self { pieces }
    }

    /// Appends the text of the template. `value` writes the value of each placeholder.
    pub(crate) fn render(&self, out: &mut String, mut value: impl FnMut(&str, &mut String)) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Placeholder(name) => value(name, out),
            }
        }
    }
}

/// Removes white space outside of JSON strings. `in_string` tells whether the text begins inside a string, and is
/// updated for the text after the next placeholder.
fn minify(text: &str, in_string: &mut bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut escaped = false;
    for character in text.chars() {
        if *in_string || !character.is_ascii_whitespace() {
            out.push(character);
        }
        match character {
            '"' if !escaped => *in_string = !*in_string,
            '\\' if *in_string && !escaped => {
                escaped = true;
                continue;
            }
            _ => {}
        }
        escaped = false;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_minified_and_rendered_with_placeholder_values() {
        let template = Template::new("{ \"a b\\\" c\": \"{{x}} y\",\n  \"n\": {{x}} }");
        let mut out = String::new();
        template.render(&mut out, |name, out| out.push_str(if name == "x" { "1" } else { "?" }));
        assert_eq!(out, r#"{"a b\" c":"1 y","n":1}"#);
    }
}
