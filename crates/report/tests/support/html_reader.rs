//! Parses pages as a browser does.

use html5gum::{Token, Tokenizer};
use std::collections::BTreeMap;

/// Elements without end tags.
const VOID: [&str; 2] = ["meta", "br"];

/// A parsed page.
#[derive(Debug, Default, PartialEq)]
pub struct Read {
    /// Its elements, in order, with the names of their attributes.
    pub elements: Vec<String>,
    /// Attributes by name, with every value.
    pub attributes: BTreeMap<String, Vec<String>>,
    pub text: String,
}

/// Parses a page; panics if it is not well-formed.
pub fn read(page: &str) -> Read {
    let (mut read, mut open) = (Read::default(), Vec::new());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    for token in Tokenizer::new(page) {
        match token.unwrap() {
            Token::StartTag(tag) => {
                let name = text(&tag.name);
                let mut element = vec![name.clone()];
                for (attribute, value) in &tag.attributes {
                    element.push(text(attribute));
                    read.attributes.entry(text(attribute)).or_default().push(text(&value.value));
                }
                read.elements.push(element.join(" "));
                if !tag.self_closing && !VOID.contains(&name.as_str()) {
                    open.push(name);
                }
            }
            Token::EndTag(tag) => assert_eq!(open.pop(), Some(text(&tag.name)), "in {}", read.elements.len()),
            Token::String(string) => read.text += &text(&string.value),
            Token::Error(error) => panic!("{error:?} after {:?}", read.elements.last()),
            Token::Comment(comment) => panic!("a comment: {}", text(&comment.value)),
            Token::Doctype(_) => assert!(read.elements.is_empty()),
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
    read
}

/// Whether a page loads and runs nothing from outside.
pub fn stays_here(read: &Read, scripts: usize) {
    for (name, values) in &read.attributes {
        assert!(!name.starts_with("on"), "{name}={values:?}");
        assert!(!["src", "srcset", "action", "data", "xlink:href"].contains(&name.as_str()), "{name}={values:?}");
        for value in values {
            let loads = name == "href" && !value.starts_with('#');
            assert!(!loads && !value.contains("url(") && !value.contains("javascript:"), "{name}={value}");
            assert!(!value.contains("://") || name == "xmlns", "{name}={value}");
        }
    }
    for element in ["link", "img", "iframe", "object", "embed", "base", "image", "use", "foreignObject"] {
        assert!(!read.elements.iter().any(|other| other.split(' ').next() == Some(element)), "{element}");
    }
    assert_eq!(read.elements.iter().filter(|element| element.starts_with("script")).count(), scripts);
}
