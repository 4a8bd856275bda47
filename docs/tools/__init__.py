"""What makes the documentation: pictures, notebooks, the examples' outputs, and what MkDocs asks for."""
