"""HLO text to the model: characters, shapes, literals, attributes, instructions, modules."""
