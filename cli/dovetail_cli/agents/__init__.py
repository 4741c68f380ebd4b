"""`dovetail mcp`: tools by which an agent asks the queue, and changes it by previews."""
