export * from 'marked';
